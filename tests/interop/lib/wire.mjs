// The modern era spoken without an SDK, for what an SDK hides: the first leg of a call, the bytes of a result, the errors.
import assert from 'node:assert/strict';
import { FULL } from './cases.mjs';

export const MODERN = '2026-07-28';
const META = 'io.modelcontextprotocol/';
export const BOTH_TYPES = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
export const REPLY_MS_MAX = 30_000;
let lastId = 0;

/** The method and params of a case, the same in both eras. */
export function request({ kind, name }, args) {
  switch (kind) {
    case 'tool': return ['tools/call', { name, arguments: args }];
    case 'prompt': return ['prompts/get', { name, arguments: args }];
    case 'resource': return ['resources/read', { uri: name }];
    case 'tools': return ['tools/list', args];
    case 'prompts': return ['prompts/list', args];
    case 'resources': return ['resources/list', args];
    case 'templates': return ['resources/templates/list', args];
    case 'complete': return ['completion/complete', args];
    default: throw new Error(`no request for ${kind}`);
  }
}

/** One leg: {status, message, text, notifications}; `message` is the final one, `text` its very bytes. */
export async function modern(url, method, params, { capabilities = FULL, meta = {}, headers = {}, signal } = {}) {
  lastId += 1;
  const _meta = {
    [`${META}protocolVersion`]: MODERN, [`${META}clientCapabilities`]: capabilities,
    [`${META}clientInfo`]: { name: 'interop-raw', version: '1.0.0' }, ...meta
  };
  const named = params.name ?? params.uri;
  const mirrored = { 'mcp-protocol-version': MODERN, 'mcp-method': method, ...(named === undefined ? {} : { 'mcp-name': named }) };
  const body = JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params: { ...params, _meta } });
  return post(url, { ...BOTH_TYPES, ...mirrored, ...headers }, body, lastId, signal);
}

export async function post(url, headers, body, id, signal) {
  const signals = [AbortSignal.timeout(REPLY_MS_MAX), ...(signal ? [signal] : [])];
  const response = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.any(signals) });
  const whole = await response.text();
  const stream = response.headers.get('content-type')?.startsWith('text/event-stream');
  const texts = stream ? events(whole) : [whole];
  const messages = texts.map(text => JSON.parse(text));
  const last = messages.findIndex(message => message.id === id && message.method === undefined);
  assert.notEqual(last, -1, `no answer to request ${id} in ${whole.slice(0, 500)}`);
  assert.equal(last, messages.length - 1, 'nothing may follow the answer');
  return {
    response, status: response.status, message: messages[last], text: texts[last], notifications: messages.slice(0, last),
    hasEventIds: Boolean(stream) && /^id:/m.test(whole)
  };
}

/** The data of every event that has some (keep-alives and priming events have none). */
function events(whole) {
  return whole.replaceAll('\r\n', '\n').split('\n\n').map(eventData).filter(text => text !== '');
}

export function eventData(block) {
  return block.split('\n').filter(line => line.startsWith('data:')).map(line => line.slice(5).trimStart()).join('\n');
}

/** The bytes of one member of a JSON object, as they stand in its text. */
export function memberText(text, name) {
  let depth = 0;
  let start = -1;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '"') {
      const end = stringEnd(text, at);
      const isKey = depth === 1 && start < 0 && text.slice(at, end) === `"${name}"` && /^\s*:/.test(text.slice(end, end + 9));
      if (isKey) start = text.indexOf(':', end) + 1;
      at = end - 1;
    } else if ('{['.includes(text[at])) depth += 1;
    else if (',}]'.includes(text[at])) {
      if (depth === 1 && start >= 0) return text.slice(start, at).trim();
      if (text[at] !== ',') depth -= 1;
    }
  }
  return undefined;
}

function stringEnd(text, quote) {
  let at = quote + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}
