// A legacy MCP server (protocol up to 2025-11-25) on the TypeScript SDK 1.x, over Streamable HTTP.
// usage: node server.mjs [--port 0] [--events] [--json] [--ask-roots-early]
//   prints `listening on PORT` once it is ready and ends when its standard input closes
//   --events           event ids and priming events on every stream
//   --json             plain answers as application/json instead of SSE (such a server cannot ask)
//   --ask-roots-early  asks for the roots as soon as a session listens, outside of any call, as many servers do
// Beside /mcp: GET /stats counts, GET /wait?sessions=N|listening=ID|event=NAME answers once that is so.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { parseArgs } from 'node:util';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { EventStore } from './event-store.mjs';
import { buildServer } from './fixture.mjs';
import { Ledger } from './ledger.mjs';

const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    events: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    'ask-roots-early': { type: 'boolean', default: false }
  }
});
const ledger = new Ledger();
const eventStore = options.events ? new EventStore() : undefined;

function json(res, status, body) {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

const refuse = (res, status, code, message) => json(res, status, { jsonrpc: '2.0', error: { code, message }, id: null });

async function openSession() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: options.json,
    eventStore,
    onsessioninitialized: id => {
      ledger.sessions.set(id, transport);
      ledger.changed();
    }
  });
  transport.onclose = () => {
    ledger.sessions.delete(transport.sessionId);
    ledger.changed();
  };
  transport.fixture = buildServer(ledger);
  await transport.fixture.mcp.connect(transport);
  return transport;
}

/** Marks the session as listening from the moment its GET stream is answered until it is closed. */
function watchListening(req, res, transport) {
  if (req.method !== 'GET') return;
  const writeHead = res.writeHead.bind(res);
  res.writeHead = (status, ...rest) => {
    if (status === 200) {
      const id = transport.sessionId;
      ledger.listen(id, +1);
      res.on('close', () => ledger.listen(id, -1));
      if (options['ask-roots-early']) transport.fixture.learnRoots();
    }
    return writeHead(status, ...rest);
  };
}

async function handleMcp(req, res) {
  const id = req.headers['mcp-session-id'];
  if (id && !ledger.sessions.has(id)) return refuse(res, 404, -32001, 'Session not found');
  if (!id && req.method !== 'POST') return refuse(res, 400, -32000, 'Bad Request: no session');
  // The SDK itself refuses a POST without a session that is not `initialize`.
  const transport = id ? ledger.sessions.get(id) : await openSession();
  watchListening(req, res, transport);
  await transport.handleRequest(req, res);
}

const server = http.createServer(async (req, res) => {
  const url = new URL(req.url, 'http://localhost');
  try {
    if (url.pathname === '/mcp') await handleMcp(req, res);
    else if (url.pathname === '/stats') json(res, 200, ledger.stats());
    else if (url.pathname === '/wait') {
      const held = await ledger.until(ledger.condition(url.searchParams));
      json(res, held ? 200 : 408, ledger.stats());
    } else json(res, 404, {});
  } catch (error) {
    console.error(error);
    if (!res.headersSent) refuse(res, 500, -32603, 'Internal error');
  }
});
server.listen(Number(options.port), '127.0.0.1', () => console.log(`listening on ${server.address().port}`));
process.stdin.on('end', () => process.exit(0)).resume();
