// What the TypeScript fixture server offers: one tool for every way in which a legacy server answers or asks, an asking
// prompt, an asking resource, and plain ones beside them. ../legacy-py/fixture.py offers the same on the Python SDK.
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { addChangingParts, COUNTER } from './changing.mjs';
import { completable } from '@modelcontextprotocol/sdk/server/completable.js';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ListResourcesRequestSchema, UrlElicitationRequiredError } from '@modelcontextprotocol/sdk/types.js';

const BIG = 'x'.repeat(1 << 20);
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const COLOURS = ['red', 'green', 'grey'];

const CONFIRM = { confirm: { type: 'boolean', title: 'Confirm' } };
const EMAIL = { email: { type: 'string', title: 'Email', format: 'email' } };
const DESCRIPTION = { description: { type: 'string', title: 'What happened', minLength: 20, maxLength: 500 } };
const COLOUR = { color: { type: 'string', enum: ['red', 'green'] } };
const SIZE = { size: { type: 'integer', minimum: 1, maximum: 60 } };
const AMOUNT = { amount: { type: 'number', minimum: 0.5, maximum: 1000 } };
const REASON = {
  reason: { type: 'string', oneOf: [{ const: 'late', title: 'Came late' }, { const: 'broken', title: 'Came broken' }] }
};
const PROFILE = {
  name: { type: 'string', title: 'Name', default: 'Ada' },
  age: { type: 'integer', minimum: 0 },
  topics: { type: 'array', items: { type: 'string', enum: ['billing', 'shipping', 'other'] }, minItems: 1, maxItems: 2 }
};

const delay = ms => new Promise(resolve => setTimeout(resolve, ms));
const text = value => ({ content: [{ type: 'text', text: value }] });
const form = (message, properties, required = Object.keys(properties)) => ({
  mode: 'form', message, requestedSchema: { type: 'object', properties, required }
});
/** What a result says about an answer: the accepted field, or the action that took its place. */
const answered = (answer, field) => (answer.action === 'accept' ? JSON.stringify(answer.content[field]) : answer.action);

/** One fixture server for one session; the ledger is shared by all of them, and may be one of another process. */
export function buildServer(ledger) {
  const mcp = new McpServer(
    { name: 'holdfast-fixture-ts', version: '1.2.3', title: 'Fixture' },
    { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: 'A legacy server that asks.' });
  // Questions that belong to the calling request travel on that request's own stream.
  const ask = (extra, params, more = {}) =>
    mcp.server.elicitInput(params, { relatedRequestId: extra.requestId, signal: extra.signal, ...more });
  const sample = (extra, prompt) => mcp.server.createMessage(
    { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], systemPrompt: 'Be brief.', maxTokens: 64 },
    { relatedRequestId: extra.requestId });
  const roots = async extra => (await mcp.server.listRoots({}, { relatedRequestId: extra?.requestId })).roots;
  const fixture = { mcp, earlyRoots: undefined, learnRoots: () => { fixture.earlyRoots ??= roots().catch(() => undefined); } };
  const tool = (name, config, run) => mcp.registerTool(name, { description: name, inputSchema: {}, ...config }, async (args, extra) => {
    await ledger.started(name);
    return run(args, extra);
  });
  const parts = { mcp, ledger, fixture, tool, ask, sample, roots };
  addPlainTools(parts);
  addFormTools(parts);
  addOtherAskingTools(parts);
  addTimedTools(parts);
  addPrompts(parts);
  addChangingParts(parts);
  addResources(parts);
  return fixture;
}

function addPlainTools({ tool }) {
  tool('plain_add', {
    title: 'Add', description: 'Adds two numbers.', inputSchema: { a: z.number(), b: z.number() },
    outputSchema: { sum: z.number() }, annotations: { readOnlyHint: true, openWorldHint: false }, _meta: { 'example.com/price': 0 }
  }, ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }));
  tool('big_result', { description: 'Returns 1 MiB of text.' }, () => text(BIG));
  tool('fails', { description: 'Always fails.' }, () => { throw new Error('this tool always fails: "quoted", é, 漢'); });
  tool('every_content', { description: 'One content block of every kind, with annotations and _meta.' }, () => ({
    content: [
      { type: 'text', text: 'tab\t "quote" é 漢 😀', annotations: { audience: ['user'], priority: 0.25 } },
      { type: 'image', data: PIXEL, mimeType: 'image/png' },
      { type: 'audio', data: PIXEL, mimeType: 'audio/wav' },
      { type: 'resource_link', uri: 'fixture://note', name: 'note', mimeType: 'text/plain' },
      { type: 'resource', resource: { uri: 'fixture://note', mimeType: 'text/plain', text: 'embedded' } }
    ],
    _meta: { 'example.com/trace': 'abc' }
  }));
}

function addFormTools({ tool, ask }) {
  tool('cancel-subscription', { inputSchema: { subscriptionId: z.string().default('sub-1') } },
    async ({ subscriptionId }, extra) => {
      const r = await ask(extra, form(`Cancel subscription ${subscriptionId}?`, CONFIRM));
      if (r.action !== 'accept') return text(`no change: ${r.action}`);
      return text(r.content.confirm ? `cancelled ${subscriptionId}` : `kept ${subscriptionId}`);
    });
  tool('file-shipping-claim', { inputSchema: { orderId: z.string().default('order-1') } }, async ({ orderId }, extra) => {
    const mail = await ask(extra, form('Which email should we answer to?', EMAIL));
    if (mail.action !== 'accept') return text(`claim stopped at email: ${mail.action}`);
    const what = await ask(extra, form('Describe the damage.', DESCRIPTION));
    if (what.action !== 'accept') return text(`claim stopped at description: ${what.action}`);
    return text(`claim for ${orderId} by ${mail.content.email}: ${what.content.description}`);
  });
  tool('refund', { description: 'Three rounds and a fourth.' }, async (_args, extra) => {
    const steps = [['How much?', AMOUNT], ['Why?', REASON], ['About whom?', PROFILE], ['Sure?', CONFIRM]];
    const said = [];
    for (const [message, properties] of steps) {
      const r = await ask(extra, form(message, properties));
      said.push(r.action === 'accept' ? JSON.stringify(Object.entries(r.content).sort()) : r.action);
      if (r.action !== 'accept') break;
    }
    return text(said.join(' '));
  });
  tool('two_at_once', {}, async (_args, extra) => {
    const [color, size] = await Promise.all([ask(extra, form('Which color?', COLOUR)), ask(extra, form('Which size?', SIZE))]);
    return text(`color=${answered(color, 'color')} size=${answered(size, 'size')}`);
  });
  tool('same_keys_at_once', { description: 'Two forms of several properties each.' }, async (_args, extra) => {
    const both = await Promise.all([ask(extra, form('First person?', PROFILE)), ask(extra, form('Second person?', PROFILE))]);
    return text(both.map(r => answered(r, 'name')).join(' and '));
  });
  tool('echo_word', { inputSchema: { id: z.string(), related: z.boolean().default(true) } }, async ({ id, related }, extra) => {
    const r = await ask(extra, form(`Word for ${id}?`, { word: { type: 'string' } }), related ? {} : { relatedRequestId: undefined });
    return text(`${id} got ${answered(r, 'word')}`);
  });
  tool('elicit_on_get_stream', { description: 'Asks without naming the request it belongs to.' }, async (_args, extra) => {
    const r = await ask(extra, form('Seen on the GET stream?', CONFIRM), { relatedRequestId: undefined });
    return text(`unrelated: ${answered(r, 'confirm')}`);
  });
}

function addOtherAskingTools({ mcp, ledger, fixture, tool, ask, sample, roots }) {
  tool('ask_llm', { inputSchema: { prompt: z.string().default('Capital of France?') } }, async ({ prompt }, extra) => {
    const r = await sample(extra, prompt);
    return text(`${r.model} said ${r.content.text} (${r.stopReason})`);
  });
  tool('list_roots', {}, async (_args, extra) => text(`roots: ${(await roots(extra)).map(r => `${r.name}=${r.uri}`).join(' ')}`));
  tool('early_roots', { description: 'The roots that were asked for outside of any call.' }, async () => {
    const found = await fixture.earlyRoots;
    return text(`early roots: ${found?.map(r => r.uri).join(' ')}`);
  });
  tool('all_at_once', { description: 'A form, a sampling request and a roots request at the same time.' }, async (_args, extra) => {
    const [a, b, c] = await Promise.all([ask(extra, form('Go on?', CONFIRM)), sample(extra, 'Say it.'), roots(extra)]);
    return text(`${answered(a, 'confirm')} ${b.content.text} ${c.length}`);
  });
  tool('url_auth', { description: 'One url elicitation, then its completion notification.' }, async (_args, extra) => {
    const elicitationId = randomUUID();
    const r = await ask(extra, { mode: 'url', message: 'Sign in, please.', elicitationId, url: 'https://example.com/login?e=1' });
    await mcp.server.createElicitationCompletionNotifier(elicitationId, { relatedRequestId: extra.requestId })();
    return text(`url: ${r.action}`);
  });
  tool('url_auth_error', { description: 'Wants a sign-in the first time it sees a key.', inputSchema: { key: z.string() } }, async ({ key }) => {
    const seen = await ledger.happened(`signed-in:${key}`);
    if (seen) return text(`signed in as ${key}`);
    throw new UrlElicitationRequiredError([
      { mode: 'url', message: 'Sign in first.', elicitationId: randomUUID(), url: 'https://example.com/login?e=2' }
    ], 'Sign in first.');
  });
}

function addTimedTools({ ledger, tool, ask }) {
  tool('slow_progress', { description: 'Progress, a question, more progress, a result.' }, async (_args, extra) => {
    const progressToken = extra._meta?.progressToken;
    const step = async n => {
      await delay(10);
      if (progressToken === undefined) return;
      const params = { progressToken, progress: n, total: 4, message: `step ${n}` };
      await extra.sendNotification({ method: 'notifications/progress', params });
    };
    await step(1);
    await step(2);
    const r = await ask(extra, form('Go on?', CONFIRM));
    await step(3);
    await step(4);
    return text(`done: ${answered(r, 'confirm')}`);
  });
  tool('log_then_ask', { description: 'Log messages, a question, a log message.' }, async (_args, extra) => {
    const log = (level, data) =>
      extra.sendNotification({ method: 'notifications/message', params: { level, logger: 'fixture', data } });
    await log('debug', 'about to ask');
    await log('warning', { step: 1 });
    const r = await ask(extra, form('Go on?', CONFIRM));
    await log('info', 'asked');
    return text(`asked: ${answered(r, 'confirm')}`);
  });
  // Gives up 300 ms after it asked: the number is arbitrary, tests wait for the event instead of measuring it.
  tool('elicit_timeout', { description: 'Asks, and gives up soon.', inputSchema: { key: z.string(), ms: z.number().default(300) } },
    async ({ key, ms }, extra) => {
      try {
        return text(`in time: ${answered(await ask(extra, form('Quick!', CONFIRM), { timeout: ms }), 'confirm')}`);
      } catch (error) {
        await ledger.happened(`gave-up:${key}`);
        throw error;
      }
    });
  tool('hang', { description: 'Runs until it is cancelled.', inputSchema: { key: z.string() } }, async ({ key }, extra) => {
    const cancelled = new Promise(resolve => extra.signal.addEventListener('abort', resolve));
    await ledger.happened(`hanging:${key}`);
    await cancelled;
    await ledger.happened(`cancelled:${key}`);
    return text('cancelled');
  });
}

function addPrompts({ mcp, ledger, ask }) {
  const says = value => ({ messages: [{ role: 'user', content: { type: 'text', text: value } }] });
  mcp.registerPrompt('plain_prompt', {
    title: 'Plain', description: 'Greets.',
    argsSchema: {
      name: completable(z.string().describe('whom'), typed => ['Ada', 'Alan', 'Grace'].filter(n => n.startsWith(typed))),
      mood: z.string().optional()
    }
  }, ({ name, mood }) => ({ description: 'A greeting', ...says(`Greet ${name}, ${mood ?? 'calmly'}.`) }));
  mcp.registerPrompt('eliciting_prompt', { description: 'Asks for a topic first.' }, async extra => {
    await ledger.started('eliciting_prompt');
    const r = await ask(extra, form('Which topic?', { topic: { type: 'string', minLength: 3 } }));
    return says(`Write about ${answered(r, 'topic')}.`);
  });
}

function addResources({ mcp, ledger, ask }) {
  const plain = { mimeType: 'text/plain' };
  mcp.registerResource('note', 'fixture://note', { ...plain, description: 'A note', title: 'Note' },
    uri => ({ contents: [{ uri: uri.href, ...plain, text: 'a note' }] }));
  mcp.registerResource('pixel', 'fixture://pixel', { mimeType: 'image/png' },
    uri => ({ contents: [{ uri: uri.href, mimeType: 'image/png', blob: PIXEL }] }));
  mcp.registerResource('paint',
    new ResourceTemplate('fixture://paint/{colour}', {
      list: undefined, complete: { colour: typed => COLOURS.filter(c => c.startsWith(typed)) }
    }),
    { ...plain, description: 'A paint' },
    (uri, { colour }) => ({ contents: [{ uri: uri.href, ...plain, text: `${colour} paint` }] }));
  const secrets = new ResourceTemplate('fixture://secret/{name}', { list: undefined });
  mcp.registerResource('secret', secrets, plain, async (uri, { name }, extra) => {
    await ledger.started('secret');
    const r = await ask(extra, form(`Reveal ${name}?`, CONFIRM));
    return { contents: [{ uri: uri.href, ...plain, text: `secret of ${name}: ${answered(r, 'confirm')}` }] };
  });
  // Two pages, so that cursors are exercised.
  const listed = [
    { name: 'note', title: 'Note', uri: 'fixture://note', mimeType: 'text/plain', description: 'A note' },
    { name: 'pixel', uri: 'fixture://pixel', mimeType: 'image/png' },
    { name: 'counter', uri: COUNTER, mimeType: 'text/plain' }
  ];
  mcp.server.setRequestHandler(ListResourcesRequestSchema, ({ params }) =>
    params?.cursor === 'page-2' ? { resources: listed.slice(1) } : { resources: [listed[0]], nextCursor: 'page-2' });
}
