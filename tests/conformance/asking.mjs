// The tools that ask their client something before they answer. Every question rides the stream of the call it belongs
// to; its key in an `InputRequiredResult` is hinted in `_meta`, where the suite looks for a certain one.
import { text } from './content.mjs';

const KEY = 'holdfast/inputKey';
const EMPTY = { type: 'object' };

export const asking = {
  /** Asks for a form with one required property. */
  elicit: (server, extra, message, properties, key) => server.elicitInput({
    mode: 'form', message, requestedSchema: { type: 'object', properties, required: Object.keys(properties) },
    ...(key && { _meta: { [KEY]: key } })
  }, { relatedRequestId: extra.requestId }),
  sample: (server, extra, prompt, maxTokens) => server.createMessage(
    { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens },
    { relatedRequestId: extra.requestId }),
  roots: (server, extra) => server.listRoots({}, { relatedRequestId: extra.requestId })
};

const NAME = { name: { type: 'string' } };
const said = (answer, property) => (answer.action === 'accept' ? answer.content[property] : answer.action);
const tool = (name, description, run) => ({ name, description, inputSchema: EMPTY, run });

async function confirmed(server, extra) {
  const answer = await asking.elicit(server, extra, 'Please confirm', { ok: { type: 'boolean' } }, 'confirm');
  return text(`state-ok: ${said(answer, 'ok')}`);
}

export const askingTools = [
  tool('test_input_required_result_elicitation', 'Asks for a name.', async (server, extra) => {
    const answer = await asking.elicit(server, extra, 'What is your name?', NAME, 'user_name');
    return text(`Hello, ${said(answer, 'name')}!`);
  }),
  tool('test_input_required_result_sampling', 'Asks the model.', async (server, extra) => {
    const answer = await asking.sample(server, extra, 'What is the capital of France?', 100);
    return text(answer.content.text);
  }),
  tool('test_input_required_result_list_roots', 'Asks for roots.', async (server, extra) => {
    const { roots } = await asking.roots(server, extra);
    return text(roots.map(root => root.uri).join(' '));
  }),
  tool('test_input_required_result_request_state', 'Asks for a confirmation.', confirmed),
  tool('test_input_required_result_tampered_state', 'Asks for a confirmation.', confirmed),
  tool('test_input_required_result_multiple_inputs', 'Asks three things at once.', async (server, extra) => {
    const [name, greeting, { roots }] = await Promise.all([
      asking.elicit(server, extra, 'What is your name?', NAME, 'user_name'),
      asking.sample(server, extra, 'Generate a greeting', 50),
      asking.roots(server, extra)
    ]);
    return text(`${greeting.content.text}, ${said(name, 'name')}: ${roots.length} roots`);
  }),
  tool('test_input_required_result_multi_round', 'Asks one thing after the other.', async (server, extra) => {
    const name = await asking.elicit(server, extra, 'Step 1: What is your name?', NAME, 'step1');
    const color = { color: { type: 'string' } };
    const answer = await asking.elicit(server, extra, 'Step 2: What is your favorite color?', color, 'step2');
    return text(`${said(name, 'name')} likes ${said(answer, 'color')}`);
  }),
  tool('test_input_required_result_capabilities', 'Asks what its client can answer.', async (server, extra) => {
    const can = server.getClientCapabilities() ?? {};
    const parts = [];
    if (can.elicitation) parts.push(said(await asking.elicit(server, extra, 'What is your name?', NAME), 'name'));
    if (can.sampling) parts.push((await asking.sample(server, extra, 'Say hello.', 50)).content.text);
    return text(parts.join(' ') || 'nothing can be asked');
  }),
  // The SDK of the server itself would refuse to ask a client that has not declared sampling. A server that asks all
  // the same is what a gateway has to be ready for.
  tool('test_missing_capability', 'Asks the model of a client that has none.', async (server, extra) => {
    const prompt = { role: 'user', content: { type: 'text', text: 'Hello?' } };
    const answer = await extra.sendRequest(
      { method: 'sampling/createMessage', params: { messages: [prompt], maxTokens: 10 } },
      { parse: value => value, safeParse: value => ({ success: true, data: value }) });
    return text(answer.content.text);
  }),
  tool('test_streaming_elicitation', 'Reports progress and asks.', async (server, extra) => {
    const answer = await asking.elicit(server, extra, 'What is your name?', NAME, 'user_name');
    return text(`Hello, ${said(answer, 'name')}!`);
  })
];
