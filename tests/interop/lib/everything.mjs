// What else a modern client may ask: changes, mirrored arguments, slow calls, what its operator has decided for it, and
// answers from memory.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LANGUAGES } from './bench.mjs';
import { FULL } from './cases.mjs';
import { startHoldfast } from './children.mjs';
import { outcome } from './compare.mjs';
import { modern } from './wire.mjs';

const COUNTER = 'fixture://counter';
const call = name => ({ name, args: {} });

/** Runs `test` with a gateway of other settings in front of the same server. */
async function withHoldfast(bench, name, settings, run) {
  const holdfast = await startHoldfast(`${bench.label}-${name}`, bench.server, settings.timers, settings.backend);
  try {
    return await run(holdfast);
  } finally {
    assert.equal((await holdfast.stop()).code, 0, `see ${holdfast.log}`);
  }
}

/** What a call changes is told to whoever listens, although calls and listeners have sessions of their own. */
export function changes(bench) {
  for (const language of LANGUAGES)
    test(`${language} client: a changed resource and changed tools are heard of`, async () => {
      const listening = { kind: 'listen', uris: [COUNTER], calls: [call('bump'), call('toggle')], changes: 2 };
      const truth = await bench.truth(language, listening, {});
      assert.deepEqual(truth.result.heard, [
        ['notifications/resources/updated', COUNTER], ['notifications/tools/list_changed', null]
      ]);
      const { report } = await bench.through(language, listening, {});
      assert.deepEqual(outcome(report), outcome(truth));
      assert.deepEqual(report.honoured, { toolsListChanged: true, resourceSubscriptions: [COUNTER] });
    });

  test('a resource that the server does not offer for subscription is left out of the acknowledgement', async () => {
    const leaving = new AbortController();
    const params = { notifications: { toolsListChanged: true, resourceSubscriptions: [COUNTER, 'fixture://note'] } };
    // Its end is awaited nowhere: the stream is read up to the acknowledgement and closed.
    const first = await firstEvent(bench.holdfast.url, params, leaving);
    assert.equal(first.method, 'notifications/subscriptions/acknowledged');
    assert.deepEqual(first.params.notifications.resourceSubscriptions, [COUNTER]);
  });
}

/** The first event of a `subscriptions/listen` stream. */
async function firstEvent(url, params, leaving) {
  const meta = 'io.modelcontextprotocol/';
  const _meta = { [`${meta}protocolVersion`]: '2026-07-28', [`${meta}clientCapabilities`]: {} };
  const response = await fetch(url, {
    method: 'POST',
    signal: leaving.signal,
    headers: {
      'content-type': 'application/json', accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen'
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 'listener', method: 'subscriptions/listen', params: { ...params, _meta } })
  });
  let text = '';
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    const end = text.indexOf('\n\n');
    if (end >= 0) {
      leaving.abort();
      return JSON.parse(text.slice(0, end).replace(/^data: ?/m, '').replace(/^event:.*\n/, ''));
    }
  }
  throw new Error(`no event in ${text}`);
}

export function mirrored(bench) {
  const args = { region: 'eu-\u00e9', count: 2 };
  for (const language of LANGUAGES)
    test(`${language} client: an argument that its tool wants mirrored`, async () => {
      const listed = { kind: 'listed tool', name: 'mirrored', args };
      const truth = await bench.truth(language, listed, {});
      const { report } = await bench.through(language, listed, {});
      assert.deepEqual(outcome(report), outcome(truth));
    });

  test('an argument that is not mirrored, or otherwise', async () => {
    const params = { name: 'mirrored', arguments: args };
    for (const headers of [{}, { 'mcp-param-region': 'us' }]) {
      const leg = await modern(bench.holdfast.url, 'tools/call', params, { headers });
      assert.deepEqual([leg.status, leg.message.error?.code], [400, -32020], leg.text);
    }
  });
}

/** A call that is slower than a leg may be: the SDKs go on by themselves. */
export function stretched(bench) {
  test('a slow call goes on over several legs', () =>
    withHoldfast(bench, 'stretched', { timers: { leg_max: '150ms' } }, async holdfast => {
      for (const language of LANGUAGES) {
        const slow = { kind: 'tool', name: 'rest', args: { ms: 1000 } };
        const { report, starts } = await bench.through(language, slow, {}, holdfast);
        assert.equal(report.error, null, JSON.stringify(report.error));
        assert.equal(report.result.content[0].text, 'rested');
        assert.equal(starts('rest'), 1);
        assert.ok(report.http.POST >= 4, `${report.http.POST} requests of the ${language} client`);
      }
    }));
}

/** An operator may decline for clients that cannot be asked: then the tool's own words reach them. */
export function declined(bench) {
  test('what a client cannot be asked is declined on its behalf', () =>
    withHoldfast(bench, 'declined', { backend: { missing_capability: 'decline' } }, async holdfast => {
      for (const language of LANGUAGES) {
        const confirm = { kind: 'tool', name: 'cancel-subscription', args: {} };
        const { report } = await bench.through(language, confirm, { capabilities: {} }, holdfast);
        assert.equal(report.error, null, JSON.stringify(report.error));
        // The TypeScript server looks at the capabilities itself and does not even ask.
        const said = bench.peer === 'ts' ? /does not support/ : /^no change: decline$/;
        assert.match(report.result.content[0].text, said);
      }
    }));
}

export function remembered(bench) {
  test('discovery and lists from memory are those of the server', () =>
    withHoldfast(bench, 'remembered', { backend: { ttl: '10m', cache_lists: true } }, async holdfast => {
      for (const language of LANGUAGES)
        for (const kind of ['discover', 'tools', 'prompts', 'resources', 'templates']) {
          const asked = { kind, args: {} };
          const truth = await bench.truth(language, asked, {});
          for (let round = 0; round < 2; round += 1) {
            const { report } = await bench.through(language, asked, { capabilities: FULL }, holdfast);
            assert.deepEqual(outcome(report), outcome(truth), `${language} ${kind}, round ${round}`);
          }
        }
    }));
}
