// The ledger of a server over stdio. A client starts a process of it for each session, so that what is counted and
// remembered lives with whoever runs the test (see ../lib/ledger.mjs), and each process tells it there.
import http from 'node:http';

export class RemoteLedger {
  #base;

  /** Says that this process lives, by a request that is answered but never ends; when it breaks, the test is over. */
  constructor(base) {
    this.#base = base;
    const gone = () => process.exit(1);
    const alive = http.request(`${base}/alive`, { method: 'POST' }, response => response.resume().on('close', gone));
    alive.on('error', gone).end();
  }

  async started(tool) {
    await this.#count('started', tool);
  }

  happened(event) {
    return this.#count('happened', event);
  }

  async #count(what, name) {
    const response = await fetch(`${this.#base}/${what}?name=${encodeURIComponent(name)}`, { method: 'POST' });
    return (await response.json()).before;
  }
}
