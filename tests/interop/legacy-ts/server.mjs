// A legacy MCP server (protocol up to 2025-11-25) on the TypeScript SDK 1.x, over Streamable HTTP, HTTP+SSE or stdio.
// usage: node server.mjs [--transport http|sse|stdio] [--port 0] [--events] [--json] [--ask-roots-early] [--ledger URL]
//   http and sse print `listening on PORT` once they are ready and end when their standard input closes
//   --transport http   Streamable HTTP at /mcp
//   --transport sse    HTTP+SSE of 2024-11-05: GET /sse, POST /messages
//   --transport stdio  one session on standard input and output; --ledger says where it counts
//   --events           event ids and priming events on every stream (http)
//   --json             plain answers as application/json instead of SSE (http; such a server cannot ask)
//   --ask-roots-early  asks for the roots as soon as a session listens, outside of any call, as many servers do
// Beside the endpoint: GET /stats counts, GET /wait?sessions=N|listening=ID|event=NAME answers once that is so.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { parseArgs } from 'node:util';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { EventStore } from './event-store.mjs';
import { buildServer } from './fixture.mjs';
import { Ledger } from './ledger.mjs';
import { RemoteLedger } from './remote-ledger.mjs';

const { values: options } = parseArgs({
  options: {
    transport: { type: 'string', default: 'http' },
    port: { type: 'string', default: '0' },
    events: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    'ask-roots-early': { type: 'boolean', default: false },
    ledger: { type: 'string' }
  }
});
const ledger = options.ledger ? new RemoteLedger(options.ledger) : new Ledger();
const eventStore = options.events ? new EventStore() : undefined;

function json(res, status, body) {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

const refuse = (res, status, code, message) => json(res, status, { jsonrpc: '2.0', error: { code, message }, id: null });

/** A fixture server on the transport. Where there is no GET stream, the roots are asked for after `initialized`. */
async function connect(transport, listensAtOnce) {
  const fixture = buildServer(ledger);
  if (options['ask-roots-early'] && listensAtOnce) fixture.mcp.server.oninitialized = () => fixture.learnRoots();
  await fixture.mcp.connect(transport);
  return fixture;
}

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
  transport.fixture = await connect(transport, false);
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

async function handleStreamableHttp(req, res) {
  const id = req.headers['mcp-session-id'];
  if (id && !ledger.sessions.has(id)) return refuse(res, 404, -32001, 'Session not found');
  if (!id && req.method !== 'POST') return refuse(res, 400, -32000, 'Bad Request: no session');
  // The SDK itself refuses a POST without a session that is not `initialize`.
  const transport = id ? ledger.sessions.get(id) : await openSession();
  watchListening(req, res, transport);
  await transport.handleRequest(req, res);
}

/** HTTP+SSE: the stream is the session, and lasts as long. */
async function openStream(req, res) {
  if (req.method !== 'GET') return refuse(res, 405, -32000, 'Method not allowed');
  const transport = new SSEServerTransport('/messages', res);
  ledger.sessions.set(transport.sessionId, transport);
  ledger.changed();
  res.on('close', () => {
    ledger.sessions.delete(transport.sessionId);
    ledger.changed();
  });
  await connect(transport, true);
}

async function handleMessage(req, res, url) {
  const transport = ledger.sessions.get(url.searchParams.get('sessionId'));
  if (!transport) return refuse(res, 404, -32001, 'Session not found');
  await transport.handlePostMessage(req, res);
}

const endpoints = {
  http: { '/mcp': handleStreamableHttp },
  sse: { '/sse': openStream, '/messages': handleMessage }
}[options.transport];

function listen() {
  const server = http.createServer(async (req, res) => {
    const url = new URL(req.url, 'http://localhost');
    try {
      if (url.pathname in endpoints) await endpoints[url.pathname](req, res, url);
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
  process.stdin.resume();
}

process.stdin.on('end', () => process.exit(0));
if (options.transport === 'stdio') await connect(new StdioServerTransport(), true);
else listen();
