// What changes in the TypeScript fixture server, and a tool that wants an argument mirrored in a header.
// ../legacy-py/changing.py offers the same.
import { z } from 'zod';
import { SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';

export const COUNTER = 'fixture://counter';
const text = value => ({ content: [{ type: 'text', text: value }] });

/** A change is told to the session that caused it, as the SDK does it: a resource's if that session subscribed. */
export function addChangingParts({ mcp, ledger, tool }) {
  const subscribed = new Set();
  mcp.registerResource('counter', COUNTER, { mimeType: 'text/plain' },
    uri => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'some count' }] }));
  mcp.server.setRequestHandler(SubscribeRequestSchema, async ({ params }) => {
    if (params.uri !== COUNTER) throw new Error(`cannot subscribe to ${params.uri}`);
    subscribed.add(params.uri);
    await ledger.happened('subscribed');
    return {};
  });
  mcp.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });
  tool('bump', { description: 'Changes the counter.' }, async () => {
    if (subscribed.has(COUNTER)) await mcp.server.sendResourceUpdated({ uri: COUNTER });
    return text('bumped');
  });
  tool('toggle', { description: 'Says that the tools have changed.' }, async () => {
    await mcp.server.sendToolListChanged();
    return text('toggled');
  });
  tool('mirrored', {
    description: 'Wants its region mirrored in a header.',
    inputSchema: { region: z.string().meta({ 'x-mcp-header': 'Region' }), count: z.number().int().optional() }
  }, ({ region }) => text(`region ${region}`));
  // How long it takes is given by who calls it: a test of slow calls bounds the legs far below it.
  tool('rest', { description: 'Takes a while.', inputSchema: { ms: z.number() } }, async ({ ms }) => {
    await new Promise(resolve => setTimeout(resolve, ms));
    return text('rested');
  });
}
