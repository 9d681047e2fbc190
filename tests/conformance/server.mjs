// A legacy MCP server (protocol up to 2025-11-25) on the TypeScript SDK 1.x that offers what the scenarios of the public
// conformance suite look for. It asks the legacy way: by requests of its own in mid-call.
// usage: node server.mjs
//   prints `listening on PORT` once it is ready and ends when its standard input closes
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { serveCompletions, servePrompts } from './prompts.mjs';
import { serveResources } from './resources.mjs';
import { serveTools } from './tools.mjs';

const sessions = new Map();

/** What one session offers. Tools and prompts that are added stay with the session that added them, as in the SDK. */
function buildServer() {
  const server = new Server({ name: 'holdfast-conformance', version: '1.0.0' }, {
    capabilities: {
      tools: { listChanged: true }, prompts: { listChanged: true }, resources: { listChanged: true, subscribe: true },
      logging: {}, completions: {}
    },
    instructions: 'A legacy server for the conformance suite.'
  });
  serveTools(server);
  servePrompts(server);
  serveResources(server);
  serveCompletions(server);
  return server;
}

async function openSession() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: id => sessions.set(id, transport)
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await buildServer().connect(transport);
  return transport;
}

function refuse(res, status, code, message) {
  res.writeHead(status, { 'content-type': 'application/json' })
    .end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
}

const listener = http.createServer(async (req, res) => {
  const id = req.headers['mcp-session-id'];
  try {
    if (id && !sessions.has(id)) return refuse(res, 404, -32001, 'Session not found');
    if (!id && req.method !== 'POST') return refuse(res, 400, -32000, 'Bad Request: no session');
    // The SDK itself refuses a POST without a session that is not `initialize`.
    await (id ? sessions.get(id) : await openSession()).handleRequest(req, res);
  } catch (error) {
    console.error(error);
    if (!res.headersSent) refuse(res, 500, -32603, 'Internal error');
  }
});
listener.listen(0, '127.0.0.1', () => console.log(`listening on ${listener.address().port}`));
process.stdin.on('end', () => process.exit(0)).resume();
