// The resources of the fixture. One that is not there is refused as the legacy era does it, with code -32002.
import {
  ListResourceTemplatesRequestSchema, ListResourcesRequestSchema, McpError, ReadResourceRequestSchema,
  SubscribeRequestSchema, UnsubscribeRequestSchema
} from '@modelcontextprotocol/sdk/types.js';
import { PIXEL } from './content.mjs';

const NOT_FOUND = -32002;
const TEMPLATE = /^test:\/\/template\/([^/]+)\/data$/;

const resources = [
  {
    uri: 'test://static-text', name: 'static-text', description: 'A text.', mimeType: 'text/plain',
    body: { text: 'This is the content of the static text resource.' }
  },
  { uri: 'test://static-binary', name: 'static-binary', description: 'An image.', mimeType: 'image/png', body: { blob: PIXEL } }
];

function read(uri) {
  const known = resources.find(resource => resource.uri === uri);
  if (known) return { uri, mimeType: known.mimeType, ...known.body };
  const [, id] = TEMPLATE.exec(uri) ?? [];
  if (id === undefined) throw new McpError(NOT_FOUND, 'Resource not found', { uri });
  const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
  return { uri, mimeType: 'application/json', text };
}

export function serveResources(server) {
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: resources.map(({ body, ...listed }) => listed) }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{
      uriTemplate: 'test://template/{id}/data', name: 'template', description: 'Data by id.', mimeType: 'application/json'
    }]
  }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => ({ contents: [read(params.uri)] }));
  server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
}
