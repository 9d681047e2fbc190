// A modern client on the TypeScript SDK 2.x, pinned to protocol 2026-07-28.
// Jobs come on standard input, reports go to standard output; see ../README.md.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { burst, Heard, makeAnswers, repeated, serve } from '../lib/worker.mjs';

// The SDK reports each round of questions as progress of its own making; only what the server sent counts here.
const OWN_PROGRESS = /^Fulfilling input required by /;

/** Opens a subscription, makes the calls, and waits for as many changes as are expected. */
async function listen(client, { uris, calls, changes }, report) {
  const heard = new Heard(changes);
  client.setNotificationHandler('notifications/tools/list_changed', n => heard.add(n.method));
  client.setNotificationHandler('notifications/resources/updated', n => heard.add(n.method, n.params.uri));
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: uris });
  report.honoured = subscription.honoredFilter;
  for (const call of calls) await client.callTool({ name: call.name, arguments: call.args });
  const all = await heard.all();
  await subscription.close();
  return { heard: all };
}

function runKind(client, job, report) {
  const { name, args } = job;
  const onprogress = ({ progress, total = null, message = null }) => {
    if (!OWN_PROGRESS.test(message)) report.progress.push([progress, total, message]);
  };
  // The SDK does not opt in to log messages by itself, and without this key none are sent.
  const _meta = job.logLevel ? { 'io.modelcontextprotocol/logLevel': job.logLevel } : undefined;
  switch (job.kind) {
    case 'tool': return repeated(job.until, () => client.callTool({ name, arguments: args, _meta }, { onprogress }));
    case 'prompt': return client.getPrompt({ name, arguments: args, _meta });
    case 'resource': return client.readResource({ uri: name, _meta });
    case 'tools': return client.listTools();
    case 'prompts': return client.listPrompts();
    case 'resources': return client.listResources();
    case 'templates': return client.listResourceTemplates();
    case 'complete': return client.complete(args);
    case 'listen': return listen(client, job, report);
    case 'listed tool': return client.listTools().then(() => client.callTool({ name, arguments: args }));
    case 'burst': return burst(job.calls, call => client.callTool({ name: call.name, arguments: call.args }));
    case 'discover': return {
      serverInfo: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions()
    };
    default: throw new Error(`unknown kind ${job.kind}`);
  }
}

function transportTo({ transport, url, command }, fetch) {
  if (transport === 'http') return new StreamableHTTPClientTransport(new URL(url), { fetch });
  return new StdioClientTransport({ command: command[0], args: command.slice(1) });
}

await serve(async (job, report, fetch) => {
  const answers = makeAnswers(job.answers, report);
  const client = new Client(
    { name: 'interop-modern-ts', version: '1.0.0' },
    { capabilities: job.capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
  if (job.capabilities.elicitation) client.setRequestHandler('elicitation/create', ({ params }) => answers.elicit(params));
  if (job.capabilities.sampling) client.setRequestHandler('sampling/createMessage', ({ params }) => answers.sample(params));
  if (job.capabilities.roots) client.setRequestHandler('roots/list', () => answers.roots());
  client.setNotificationHandler('notifications/message', n => { report.logs.push([n.params.level, n.params.data]); });
  try {
    await client.connect(transportTo(job.server, fetch));
    report.protocol = client.getNegotiatedProtocolVersion();
    return await runKind(client, job, report);
  } finally {
    await client.close();
  }
});
