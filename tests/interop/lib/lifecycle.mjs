// Beginnings and ends, proven from the server's side: what is cancelled when a client goes away, roots that are asked for
// outside of a call, and that nothing of holdfast is left at the server after it stopped.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertStopsCleanly, freshKey, LANGUAGES } from './bench.mjs';
import { startHoldfast } from './children.mjs';
import { outcome } from './compare.mjs';
import { modern } from './wire.mjs';

export function disconnects(bench) {
  test('a first leg whose client goes away is cancelled at the server at once', async () => {
    const key = freshKey();
    const leaving = new AbortController();
    const leg = modern(bench.holdfast.url, 'tools/call', { name: 'hang', arguments: { key } }, { signal: leaving.signal });
    leg.catch(() => {});
    assert.ok(await bench.server.wait(`event=hanging:${key}`), 'the tool runs');
    leaving.abort();
    await assert.rejects(leg, { name: 'AbortError' });
    assert.ok(await bench.server.wait(`event=cancelled:${key}`), 'the tool was told');
  });
}

export function earlyRoots(bench) {
  const early = { kind: 'tool', name: 'early_roots', args: {} };
  for (const language of LANGUAGES)
    test(`${language} client: roots asked for outside of any call are asked in the next one`, async () => {
      const truth = await bench.truth(language, early, {});
      const { report } = await bench.through(language, early, {});
      assert.match(truth.result.content[0].text, /^early roots: file:/);
      assert.deepEqual(outcome(report), outcome(truth));
      assert.deepEqual(report.asked, [{ method: 'roots/list' }]);
    });
}

/** Comes after `cleanEnd`: the bench's own holdfast is gone then, and every session at the server is this one's. */
export function heldAtTheEnd(bench) {
  test('SIGTERM while a call is held: exit 0, nothing left at the server', async () => {
    const holdfast = await startHoldfast(`${bench.label}-held`, bench.server, { shutdown_deadline: '1s' });
    try {
      const leg = await modern(holdfast.url, 'tools/call', { name: 'cancel-subscription', arguments: {} });
      assert.equal(leg.message.result?.resultType, 'input_required', leg.text);
      await assertStopsCleanly(holdfast, bench.server);
    } finally {
      await holdfast.stop();
    }
  });
}

/** The ordinary end, after all that was done with the bench. */
export function cleanEnd(bench) {
  test('SIGTERM: exit 0, no session and no stream left at the server', async () => {
    assert.equal((await bench.patient.stop()).code, 0);
    await bench.endDirect();
    await assertStopsCleanly(bench.holdfast, bench.server);
  });
}
