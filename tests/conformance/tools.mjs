// The tools of the fixture.
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { askingTools } from './asking.mjs';
import { SILENCE, embedded, image, text } from './content.mjs';

const EMPTY = { type: 'object' };
const pause = () => new Promise(resolve => setTimeout(resolve, 50));
const plain = (name, description, run) => ({ name, description, inputSchema: EMPTY, run });

/** The keywords that must survive the way to a modern client. */
const DIALECT = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } }
    }
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' }
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false
};

async function reportsProgress(server, extra) {
  const progressToken = extra._meta?.progressToken;
  for (const progress of [0, 50, 100]) {
    if (progressToken !== undefined) {
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
    }
    await pause();
  }
  return text('done');
}

async function logs(server, extra) {
  await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data: 'working' } });
  return text('logged');
}

const mirrored = {
  name: 'test_custom_header',
  description: 'Wants an argument mirrored in a header.',
  inputSchema: {
    type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, query: { type: 'string' } },
    required: ['region']
  },
  run: (server, extra, args) => text(`region ${args.region}`)
};

const plainTools = [
  plain('test_simple_text', 'Returns a text.', () => text('This is a simple text response for testing.')),
  plain('test_image_content', 'Returns an image.', () => ({ content: [image] })),
  plain('test_audio_content', 'Returns a sound.',
    () => ({ content: [{ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }] })),
  plain('test_embedded_resource', 'Returns a resource.', () => (
    { content: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')] })),
  plain('test_multiple_content_types', 'Returns one of each.', () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' }, image,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}')
    ]
  })),
  plain('test_error_handling', 'Always fails.',
    () => ({ ...text('This tool intentionally returns an error for testing'), isError: true })),
  plain('test_tool_with_progress', 'Reports progress.', reportsProgress),
  plain('test_logging_tool', 'Logs.', logs),
  plain('test_trigger_tool_change', 'Changes the list of tools.', async server => {
    await server.sendToolListChanged();
    return text('changed');
  }),
  plain('test_trigger_prompt_change', 'Changes the list of prompts.', async server => {
    await server.sendPromptListChanged();
    return text('changed');
  }),
  { name: 'json_schema_2020_12_tool', description: 'Has a schema of many keywords.', inputSchema: DIALECT, run: () => text('ok') },
  mirrored
];

const tools = [...plainTools, ...askingTools];

export function serveTools(server) {
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: tools.map(({ run, ...listed }) => listed) }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) => {
    const tool = tools.find(known => known.name === params.name);
    if (!tool) return { ...text(`Unknown tool: ${params.name}`), isError: true };
    return tool.run(server, extra, params.arguments ?? {});
  });
}
