// A legacy client on the TypeScript SDK 1.x. Straight against a server it tells the truth: what a call really returns,
// with no gateway between. Jobs come on standard input, reports go to standard output; see ../README.md.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { burst, Heard, makeAnswers, serve } from '../lib/worker.mjs';

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

function runKind(client, job, report) {
  const { name, args } = job;
  const onprogress = p => report.progress.push([p.progress, p.total ?? null, p.message ?? null]);
  switch (job.kind) {
    case 'tool': return client.callTool({ name, arguments: args }, undefined, { onprogress });
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

/** Writes down the questions as they came: what the SDK hands to its handlers lacks the members that it does not know. */
function recordQuestions(transport, asked) {
  const { onmessage } = transport;
  transport.onmessage = (message, extra) => {
    const { method, params } = message;
    if (QUESTIONS.includes(method)) asked.push(method === 'roots/list' ? { method } : { method, params });
    onmessage(message, extra);
  };
}

await serve(async (job, report, fetch) => {
  const answers = makeAnswers(job.answers, { asked: [] });
  const client = new Client({ name: 'interop-legacy-ts', version: '1.0.0' }, { capabilities: job.capabilities });
  if (job.capabilities.elicitation) client.setRequestHandler(ElicitRequestSchema, ({ params }) => answers.elicit(params));
  if (job.capabilities.sampling) client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => answers.sample(params));
  if (job.capabilities.roots) client.setRequestHandler(ListRootsRequestSchema, () => answers.roots());
  client.setNotificationHandler(LoggingMessageNotificationSchema, n => { report.logs.push([n.params.level, n.params.data]); });
  const transport = new StreamableHTTPClientTransport(new URL(job.url), { fetch });
  try {
    await client.connect(transport);
    recordQuestions(transport, report.asked);
    report.protocol = transport.protocolVersion;
    // The SDK opens its GET stream in the background; what a server asks there before that is lost.
    if (job.waitListening) await globalThis.fetch(`${job.waitListening}${transport.sessionId}`);
    return await runKind(client, job, report);
  } finally {
    await transport.terminateSession().catch(() => {});
    await client.close();
  }
});
