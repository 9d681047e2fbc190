// A legacy client on the TypeScript SDK 1.x. Straight against a server it tells the truth: what a call really returns,
// with no gateway between. Jobs come on standard input, reports go to standard output; see ../README.md.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import WebSocket from 'ws';
import { burst, Heard, makeAnswers, repeated, serve } from '../lib/worker.mjs';

globalThis.WebSocket ??= WebSocket; // Node 20 has none, and the SDK wants the browser's

async function pages(method, field) {
  const all = [];
  let cursor;
  do {
    const page = await method({ cursor });
    all.push(...page[field]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return { [field]: all };
}

/** Subscribes, makes the calls, and waits for as many changes as are expected. */
async function listen(client, { uris, calls, changes }) {
  const heard = new Heard(changes);
  client.setNotificationHandler(ToolListChangedNotificationSchema, n => heard.add(n.method));
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => heard.add(n.method, n.params.uri));
  for (const uri of uris) await client.subscribeResource({ uri });
  for (const call of calls) await client.callTool({ name: call.name, arguments: call.args });
  return { heard: await heard.all() };
}

function runKind(client, job) {
  const { name, args } = job;
  const onprogress = () => {}; // makes the SDK ask for progress, which is written down below
  switch (job.kind) {
    case 'tool': return repeated(job.until, () => client.callTool({ name, arguments: args }, undefined, { onprogress }));
    case 'prompt': return client.getPrompt({ name, arguments: args });
    case 'resource': return client.readResource({ uri: name });
    case 'tools': return pages(p => client.listTools(p), 'tools');
    case 'prompts': return pages(p => client.listPrompts(p), 'prompts');
    case 'resources': return pages(p => client.listResources(p), 'resources');
    case 'templates': return pages(p => client.listResourceTemplates(p), 'resourceTemplates');
    case 'complete': return client.complete(args);
    case 'listed tool': return client.listTools().then(() => client.callTool({ name, arguments: args }));
    case 'listen': return listen(client, job);
    case 'burst': return burst(job.calls, call => client.callTool({ name: call.name, arguments: call.args }));
    case 'discover': return {
      serverInfo: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions()
    };
    default: throw new Error(`unknown kind ${job.kind}`);
  }
}

const QUESTIONS = ['elicitation/create', 'sampling/createMessage', 'roots/list'];

/**
 * Writes down questions and progress as they came: what the SDK hands to its handlers lacks the members that it does not
 * know, and it drops progress that comes in one piece with the result.
 */
function recordMessages(transport, current) {
  const { onmessage } = transport;
  transport.onmessage = (message, extra) => {
    const { method, params } = message;
    const { asked, progress } = current.report;
    if (QUESTIONS.includes(method)) asked.push(method === 'roots/list' ? { method } : { method, params });
    if (method === 'notifications/progress') progress.push([params.progress, params.total ?? null, params.message ?? null]);
    onmessage(message, extra);
  };
}

function transportTo({ transport, url, command, cwd }, fetch) {
  switch (transport) {
    case 'http': return new StreamableHTTPClientTransport(new URL(url), { fetch });
    case 'sse': return new SSEClientTransport(new URL(url), { fetch });
    case 'websocket': return new WebSocketClientTransport(new URL(url));
    case 'stdio': return new StdioClientTransport({ command: command[0], args: command.slice(1), cwd });
    default: throw new Error(`unknown transport ${transport}`);
  }
}

/** A session with what belongs to the job that it is used for: `current` is replaced for each. */
async function open(job, current, fetch) {
  const { capabilities } = job;
  const client = new Client({ name: 'interop-legacy-ts', version: '1.0.0' }, { capabilities });
  const answer = method => ({ params }) => current.answers[method](params);
  if (capabilities.elicitation) client.setRequestHandler(ElicitRequestSchema, answer('elicit'));
  if (capabilities.sampling) client.setRequestHandler(CreateMessageRequestSchema, answer('sample'));
  if (capabilities.roots) client.setRequestHandler(ListRootsRequestSchema, answer('roots'));
  client.setNotificationHandler(LoggingMessageNotificationSchema, n => { current.report.logs.push([n.params.level, n.params.data]); });
  const transport = transportTo(job.server, fetch);
  await client.connect(transport);
  recordMessages(transport, current);
  return { client, transport, current };
}

async function close({ client, transport }) {
  await transport.terminateSession?.().catch(() => {});
  await client.close();
}

// Where a session costs a process, it is kept for all jobs that want one like it.
const kept = new Map();

async function session(job, current, fetch) {
  if (!job.server.keep) return open(job, current, fetch);
  const key = JSON.stringify([job.server, job.capabilities]);
  if (!kept.has(key)) kept.set(key, await open(job, { ...current }, fetch));
  Object.assign(kept.get(key).current, current);
  return kept.get(key);
}

async function closeKept() {
  await Promise.all([...kept.values()].map(close));
  kept.clear();
}

async function run(job, report, fetch) {
  if (job.kind === 'close kept') return closeKept();
  const answers = makeAnswers(job.answers, { asked: [] });
  const used = await session(job, { answers, report }, fetch);
  try {
    report.protocol = used.transport.protocolVersion ?? null;
    // The SDK opens its GET stream in the background; what a server asks there before that is lost.
    if (job.waitListening) await globalThis.fetch(`${job.waitListening}${used.transport.sessionId}`);
    return await runKind(used.client, job);
  } finally {
    if (!job.server.keep) await close(used);
  }
}

await serve(run, closeKept);
