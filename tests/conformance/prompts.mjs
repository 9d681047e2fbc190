// The prompts of the fixture, and completion of their arguments.
import {
  CompleteRequestSchema, ErrorCode, GetPromptRequestSchema, ListPromptsRequestSchema, McpError
} from '@modelcontextprotocol/sdk/types.js';
import { asking } from './asking.mjs';
import { embedded, image } from './content.mjs';

const says = text => ({ type: 'text', text });
const messages = (...contents) => ({ messages: contents.map(content => ({ role: 'user', content })) });
const required = (...names) => names.map(name => ({ name, description: `The ${name}.`, required: true }));

const prompts = [
  { name: 'test_simple_prompt', description: 'Takes nothing.', run: () => messages(says('This is a simple prompt for testing.')) },
  {
    name: 'test_prompt_with_arguments',
    description: 'Takes two arguments.',
    arguments: required('arg1', 'arg2'),
    run: (server, extra, { arg1, arg2 }) => messages(says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))
  },
  {
    name: 'test_prompt_with_embedded_resource',
    description: 'Embeds a resource.',
    arguments: required('resourceUri'),
    run: (server, extra, { resourceUri }) => messages(
      embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      says('Please process the embedded resource above.'))
  },
  {
    name: 'test_prompt_with_image',
    description: 'Shows an image.',
    run: () => messages(image, says('Please analyze the image above.'))
  },
  {
    name: 'test_input_required_result_prompt',
    description: 'Asks for its context.',
    run: async (server, extra) => {
      const context = { context: { type: 'string' } };
      const answer = await asking.elicit(server, extra, 'What context should the prompt use?', context, 'user_context');
      return messages(says(`Context: ${answer.content?.context ?? answer.action}`));
    }
  }
];

export function servePrompts(server) {
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: prompts.map(({ run, ...listed }) => listed) }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }, extra) => {
    const prompt = prompts.find(known => known.name === params.name);
    if (!prompt) throw new McpError(ErrorCode.InvalidParams, `Unknown prompt: ${params.name}`);
    return prompt.run(server, extra, params.arguments ?? {});
  });
}

export function serveCompletions(server) {
  const places = ['paris', 'park', 'party'];
  server.setRequestHandler(CompleteRequestSchema, ({ params }) => {
    const values = places.filter(place => place.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
}
