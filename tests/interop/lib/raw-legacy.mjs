// A legacy session spoken without an SDK over any transport, for the very bytes that a server writes. Such a session asks
// and declares nothing: `call` sends a request and gives its answer as {message, text}.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { HERE } from './children.mjs';
import { BOTH_TYPES, eventData, post, REPLY_MS_MAX } from './wire.mjs';

const LEGACY = '2025-11-25';
const INITIALIZE = {
  protocolVersion: LEGACY, capabilities: {}, clientInfo: { name: 'interop-raw', version: '1.0.0' }
};
const INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
let lastId = 0;

function requestText(method, params) {
  lastId += 1;
  return JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params });
}

export async function openLegacySession(server) {
  if (server.transport === 'http') return overStreamableHttp(server.url);
  const open = { sse: overHttpSse, websocket: overWebSocket, stdio: overStdio }[server.transport];
  const channel = new Channel();
  Object.assign(channel, await open(server, text => channel.take(text)));
  await channel.call('initialize', INITIALIZE);
  await channel.send(INITIALIZED);
  return channel;
}

/** One stream of messages each way, as all transports but Streamable HTTP have it. */
class Channel {
  #waiting = new Map(); // request id -> resolve

  take(text) {
    const message = JSON.parse(text);
    this.#waiting.get(message.id)?.({ message, text });
    this.#waiting.delete(message.id);
  }

  async call(method, params) {
    const text = requestText(method, params);
    const id = lastId;
    const late = AbortSignal.timeout(REPLY_MS_MAX);
    const reply = new Promise((resolve, reject) => {
      this.#waiting.set(id, resolve);
      late.addEventListener('abort', () => reject(new Error(`no answer to ${text.slice(0, 300)}`)));
    });
    await this.send(text);
    return reply;
  }
}

async function overStreamableHttp(url) {
  const headers = { ...BOTH_TYPES };
  const call = (method, params) => post(url, headers, requestText(method, params), lastId);
  const { response } = await call('initialize', INITIALIZE);
  headers['mcp-session-id'] = response.headers.get('mcp-session-id');
  headers['mcp-protocol-version'] = LEGACY;
  const told = await fetch(url, { method: 'POST', headers, body: INITIALIZED });
  assert.equal(told.status, 202);
  return { call, close: () => fetch(url, { method: 'DELETE', headers }) };
}

async function overHttpSse({ url }, take) {
  const leaving = new AbortController();
  const response = await fetch(url, { headers: { accept: 'text/event-stream' }, signal: leaving.signal });
  let found;
  const endpoint = new Promise(resolve => { found = resolve; });
  const read = async () => {
    let rest = '';
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
      const blocks = (rest + part).replaceAll('\r\n', '\n').split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const data = eventData(block);
        if (/^event: ?endpoint$/m.test(block)) found(data);
        else if (data !== '') take(data);
      }
    }
  };
  read().catch(error => { if (error.name !== 'AbortError') throw error; });
  const target = new URL(await endpoint, url);
  const send = async body => {
    const told = await fetch(target, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    assert.ok(told.ok, `status ${told.status}`);
    await told.text();
  };
  return { send, close: () => leaving.abort() };
}

async function overWebSocket({ url }, take) {
  // The runner itself has no dependencies: this one is the legacy client's.
  const WebSocket = createRequire(path.join(HERE, 'legacy-ts/package.json'))('ws');
  const socket = new WebSocket(url, 'mcp');
  await new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
  socket.on('message', data => take(data.toString()));
  return { send: async text => socket.send(text), close: () => socket.close() };
}

async function overStdio({ command: [program, ...args] }, take) {
  const child = spawn(program, args, { cwd: HERE, stdio: ['pipe', 'pipe', 'ignore'] });
  readline.createInterface({ input: child.stdout }).on('line', take);
  const ended = new Promise(resolve => child.once('exit', resolve));
  return {
    send: async text => child.stdin.write(`${text}\n`),
    close: () => {
      child.stdin.end();
      return ended;
    }
  };
}
