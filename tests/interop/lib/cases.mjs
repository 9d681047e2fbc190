// The calls of the matrix, as data: what is called, with which answers, and what the first leg of each round must ask.
// Plain calls ask nothing. An asking call lists, round by round, the keys of `inputRequests` on the way of a person who
// says yes to everything; `together` marks those that ask several questions at once. `only` names the transports a call is
// left to, where it can exist; all others come over every transport.

export const FULL = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** What the person answers; `wrong` is what a careless person tries first. */
export const ANSWERS = {
  fields: {
    confirm: true, email: 'ada@example.com', description: 'The box arrived crushed and wet.', color: 'green', size: 42,
    amount: 12.5, reason: 'broken', name: 'Grace', age: 85, topics: ['billing', 'other'], topic: 'gateways', word: '$message'
  },
  wrong: {
    confirm: 'yes', email: 'not an address', description: 'too short', color: 'blue', size: 61, amount: 0.25,
    reason: 'Came late', age: -1, topics: ['billing', 'shipping', 'other'], topic: 'ab'
  },
  sample: 'Paris',
  roots: [{ uri: 'file:///fixture/a', name: 'a' }, { uri: 'file:///fixture/b', name: 'b' }]
};

export const PLAIN = [
  { label: 'plain_add', kind: 'tool', name: 'plain_add', args: { a: 2, b: 40.5 } },
  // The Python client takes no WebSocket message of more than 1 MiB, and this is a little more: there the other one says.
  { label: 'big_result', kind: 'tool', name: 'big_result', truthBy: { websocket: 'ts' } },
  { label: 'every_content', kind: 'tool', name: 'every_content' },
  { label: 'fails', kind: 'tool', name: 'fails' },
  { label: 'a wrong argument', kind: 'tool', name: 'plain_add', args: { a: 'two', b: 1 }, starts: 0 },
  { label: 'an unknown tool', kind: 'tool', name: 'no_such_tool', starts: 0 },
  { label: 'plain_prompt', kind: 'prompt', name: 'plain_prompt', args: { name: 'Ada', mood: 'gladly' } },
  { label: 'a prompt without its argument', kind: 'prompt', name: 'plain_prompt', args: {} },
  { label: 'an unknown prompt', kind: 'prompt', name: 'no_such_prompt', args: {} },
  { label: 'a text resource', kind: 'resource', name: 'fixture://note' },
  { label: 'a binary resource', kind: 'resource', name: 'fixture://pixel' },
  { label: 'a resource of a template', kind: 'resource', name: 'fixture://paint/green' },
  { label: 'an unknown resource', kind: 'resource', name: 'fixture://no-such' },
  { label: 'server/discover', kind: 'discover' },
  { label: 'tools/list', kind: 'tools' },
  { label: 'prompts/list', kind: 'prompts' },
  { label: 'resources/list', kind: 'resources' },
  { label: 'resources/templates/list', kind: 'templates' },
  { label: 'completion of a prompt argument', kind: 'complete',
    args: { ref: { type: 'ref/prompt', name: 'plain_prompt' }, argument: { name: 'name', value: 'A' } } },
  { label: 'completion of a template variable', kind: 'complete',
    args: { ref: { type: 'ref/resource', uri: 'fixture://paint/{colour}' }, argument: { name: 'colour', value: 'gr' } } }
].map(plain => ({ starts: plain.kind === 'tool' ? 1 : 0, args: {}, ...plain }));

const EVERY_WAY = ['accept', 'decline', 'cancel'];
const YES_OR_NO = ['accept', 'decline']; // what is not an elicitation has no third way

export const ASKING = [
  { label: 'cancel-subscription', args: { subscriptionId: 'sub-7' }, rounds: [['confirm']], invalid: true },
  { label: 'file-shipping-claim', args: { orderId: 'order-7' }, rounds: [['email'], ['description']], invalid: true },
  { label: 'refund', rounds: [['amount'], ['reason'], ['elicitation'], ['confirm']], invalid: true },
  { label: 'two_at_once', rounds: [['color', 'size']], together: true, invalid: true },
  { label: 'same_keys_at_once', rounds: [['elicitation', 'elicitation_2']], together: true, invalid: true },
  { label: 'echo_word', args: { id: 'w-1' }, rounds: [['word']] },
  // Only Streamable HTTP has streams to choose from: elsewhere this is `echo_word` once more.
  { label: 'echo_word on the GET stream', name: 'echo_word', args: { id: 'w-2', related: false }, rounds: [['word']],
    only: ['http'] },
  { label: 'elicit_on_get_stream', rounds: [['confirm']], invalid: true },
  { label: 'slow_progress', rounds: [['confirm']] },
  { label: 'log_then_ask', rounds: [['confirm']], logLevel: 'debug' },
  { label: 'log_then_ask from warning up', name: 'log_then_ask', rounds: [['confirm']], logLevel: 'warning' },
  { label: 'log_then_ask without log messages', name: 'log_then_ask', rounds: [['confirm']] },
  { label: 'ask_llm', args: { prompt: 'Capital of France?' }, rounds: [['sampling']], actions: YES_OR_NO },
  { label: 'list_roots', rounds: [['roots']], actions: YES_OR_NO },
  { label: 'all_at_once', rounds: [['confirm', 'roots', 'sampling']], together: true, actions: YES_OR_NO },
  { label: 'url_auth', rounds: [['elicitation']] },
  { label: 'url_auth_error', args: key => ({ key }), rounds: [['elicitation']], starts: 2, endsAndRunsAgain: true },
  { label: 'elicit_timeout in time', name: 'elicit_timeout', args: key => ({ key, ms: 30_000 }), rounds: [['confirm']] },
  { label: 'elicit_timeout too late', name: 'elicit_timeout', args: key => ({ key }), rounds: [['confirm']],
    actions: YES_OR_NO, after: 'gave-up:' },
  { label: 'eliciting_prompt', kind: 'prompt', rounds: [['topic']], invalid: true },
  { label: 'secret', kind: 'resource', name: 'fixture://secret/vault', counted: 'secret', rounds: [['confirm']], invalid: true }
].map(asking => ({ kind: 'tool', name: asking.label, args: {}, actions: EVERY_WAY, starts: 1, ...asking }));

/** The cases that can exist on a transport. */
export const on = (transport, cases) => cases.filter(({ only }) => !only || only.includes(transport));

/** The variants of an asking call: one for each way of answering, and one where the first answers do not fit. */
export const variants = asking => [
  ...asking.actions.map(action => ({ variant: action, answers: { ...ANSWERS, action } })),
  ...(asking.invalid ? [{ variant: 'wrong answers first', answers: { ...ANSWERS, action: 'accept', invalidFirst: true } }] : [])
];
