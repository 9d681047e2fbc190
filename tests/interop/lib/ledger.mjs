// The ledger of fixture servers over stdio: each session is a process of its own there, so the test holds what they count
// together. It offers what a fixture server over HTTP offers beside its endpoint, and takes in what the processes tell it.
//   POST /started?name=TOOL, POST /happened?name=EVENT  count; the answer says how often it had happened before
//   POST /alive                                         answered, never ended: a session lives as long as the request
//   GET /stats, GET /wait?sessions=N|event=NAME         as in ../legacy-ts/server.mjs
import http from 'node:http';
import { Ledger } from '../legacy-ts/ledger.mjs';

export class LedgerService {
  #ledger = new Ledger();
  #server = http.createServer((req, res) => this.#answer(req, res));
  #lastSession = 0;

  async start() {
    this.#server.keepAliveTimeout = 0; // a process that counts seldom must find its connection open
    await new Promise(resolve => this.#server.listen(0, '127.0.0.1', resolve));
    this.base = `http://127.0.0.1:${this.#server.address().port}`;
  }

  async #answer(req, res) {
    const url = new URL(req.url, this.base);
    const name = url.searchParams.get('name');
    switch (`${req.method} ${url.pathname}`) {
      case 'POST /started': return json(res, 200, this.#started(name));
      case 'POST /happened': return json(res, 200, { before: this.#ledger.happened(name) });
      case 'POST /alive': return this.#watch(res);
      case 'GET /stats': return json(res, 200, this.#ledger.stats());
      case 'GET /wait': return json(res, (await this.#ledger.until(this.#ledger.condition(url.searchParams))) ? 200 : 408, {});
      default: return json(res, 404, {});
    }
  }

  #started(tool) {
    this.#ledger.started(tool);
    return { before: this.#ledger.starts[tool] - 1 };
  }

  #watch(res) {
    const session = String((this.#lastSession += 1));
    this.#ledger.sessions.set(session, res);
    this.#ledger.changed();
    res.on('close', () => {
      this.#ledger.sessions.delete(session);
      this.#ledger.changed();
    });
    res.writeHead(200, { 'content-type': 'text/plain' }).flushHeaders();
  }

  async stop() {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
  }
}

const json = (res, status, body) => res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
