// Calls that outlive the gateway that held them: before each answer it is killed, and another one with the same key is
// started. The server's own event store is what they survive by.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshKey } from './bench.mjs';
import { ANSWERS, ASKING, on } from './cases.mjs';
import { startHoldfast } from './children.mjs';
import { outcome, withoutKey } from './compare.mjs';
import { assertComplete, conversation } from './legs.mjs';

const KEYS = [Buffer.alloc(32, 7).toString('base64')];

export function survival(bench) {
  // A call that has ended at the server, to be run anew or because it gave up waiting, is not held there any more.
  const held = on(bench.transport, ASKING).filter(({ endsAndRunsAgain, after }) => !endsAndRunsAgain && !after);
  for (const asking of held)
    test(`killed before each answer: ${asking.label}`, async () => {
      const table = { ...ANSWERS, action: 'accept' };
      const [truthKey, key] = [freshKey(), freshKey()];
      const truth = await bench.truth('ts', asking, { answers: table, key: truthKey });
      const counted = asking.counted ?? asking.name;
      const before = (await bench.server.stats()).starts[counted] ?? 0;
      let holdfast;
      const moves = async () => {
        await holdfast?.kill();
        // Questions that come together are to be asked together, however slow the machine is.
        const timers = asking.together ? { gather_quiet: '300ms', gather_max: '2s' } : {};
        holdfast = await startHoldfast(`${bench.label}-survival`, bench.server, timers, undefined, { keys: KEYS });
        return holdfast;
      };
      try {
        const { rounds, leg } = await conversation(bench, asking, key, table, moves);
        assert.deepEqual(rounds, asking.rounds);
        assert.deepEqual(withoutKey(outcome({ result: assertComplete(leg) }), key), withoutKey(outcome(truth), truthKey));
        assert.equal((await bench.server.stats()).starts[counted] ?? 0, before + 1);
      } finally {
        await holdfast?.kill();
      }
    });
}
