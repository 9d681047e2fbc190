// Calls that outlive the gateway that held them. Where the server can resume its streams, the gateway is killed before each
// answer, and the next one with the same key takes the call over. Where it cannot, it is killed before the last one, and the
// next runs the call again, as its operator allows.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshKey } from './bench.mjs';
import { ANSWERS, ASKING, on } from './cases.mjs';
import { startHoldfast } from './children.mjs';
import { outcome, withoutKey } from './compare.mjs';
import { assertComplete, conversation } from './legs.mjs';

const KEYS = [Buffer.alloc(32, 7).toString('base64')];

// A call that has ended at the server, to be run anew or because it gave up waiting, is not held there any more.
const held = bench => on(bench.transport, ASKING).filter(({ endsAndRunsAgain, after }) => !endsAndRunsAgain && !after);

/** A gateway in front of the bench's server that is killed, and another one started, before the answers that `kills` names. */
class Mortal {
  #answers = 0;

  constructor(bench, asking, backend, kills) {
    // Questions that come together are to be asked together, however slow the machine is.
    const timers = asking.together ? { gather_quiet: '300ms', gather_max: '2s' } : {};
    const start = () => startHoldfast(`${bench.label}-mortal`, bench.server, timers, backend, { keys: KEYS });
    Object.assign(this, { start, kills });
  }

  /** Before the first leg, and then before each answer. */
  async moves() {
    const isDue = this.#answers === 0 || this.kills(this.#answers);
    this.#answers += 1;
    if (isDue) {
      await this.end();
      this.holdfast = await this.start();
    }
    return this.holdfast;
  }

  async end() {
    await this.holdfast?.kill();
  }
}

/** Makes a call in that gateway's life: it comes to the same as without a gateway. */
async function lives(bench, asking, mortal, rounds, runs) {
  const table = { ...ANSWERS, action: 'accept' };
  const [truthKey, key] = [freshKey(), freshKey()];
  const truth = await bench.truth('ts', asking, { answers: table, key: truthKey });
  const counted = asking.counted ?? asking.name;
  const before = (await bench.server.stats()).starts[counted] ?? 0;
  try {
    const asked = await conversation(bench, asking, key, table, () => mortal.moves());
    assert.deepEqual(asked.rounds, rounds);
    const result = assertComplete(asked.leg);
    assert.deepEqual(withoutKey(outcome({ result }), key), withoutKey(outcome(truth), truthKey));
    assert.equal((await bench.server.stats()).starts[counted] ?? 0, before + runs);
  } finally {
    await mortal.end();
  }
}

export function survival(bench) {
  for (const asking of held(bench))
    test(`killed before each answer: ${asking.label}`, () => {
      const mortal = new Mortal(bench, asking, undefined, () => true);
      return lives(bench, asking, mortal, asking.rounds, 1);
    });
}

export function replay(bench) {
  for (const asking of held(bench))
    test(`killed before the last answer and run again: ${asking.label}`, () => {
      const mortal = new Mortal(bench, asking, { replay: 'always' }, answer => answer === asking.rounds.length);
      // Another visit to the same page is another visit.
      const rounds = asking.name === 'url_auth' ? [...asking.rounds, ...asking.rounds] : asking.rounds;
      return lives(bench, asking, mortal, rounds, 2);
    });
}
