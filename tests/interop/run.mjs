// Real SDK peers on both sides of the real holdfast binary: what a modern client gets through it from a legacy server
// must equal what a legacy client gets from that server directly. See README.md.
// usage: node --test tests/interop/run.mjs   (INTEROP_BENCHES=ts,py+events picks benches, HOLDFAST_BIN the binary)
import { after, before, describe } from 'node:test';
import { Bench } from './lib/bench.mjs';
import { changes, declined, mirrored, remembered, stretched } from './lib/everything.mjs';
import { onceOnly, sameBytes, threeCases } from './lib/legs.mjs';
import { cleanEnd, disconnects, earlyRoots, heldAtTheEnd } from './lib/lifecycle.mjs';
import { askingMatrix, burstMatrix, capabilityMatrix, plainMatrix } from './lib/matrix.mjs';

const everything = [
  plainMatrix, askingMatrix, capabilityMatrix, burstMatrix, threeCases, onceOnly, sameBytes, changes, mirrored, stretched,
  declined, remembered, disconnects, cleanEnd, heldAtTheEnd
];
const benches = [
  ['ts', 'ts', [], everything],
  ['ts+events', 'ts', ['--events'], everything],
  ['py', 'py', [], everything],
  ['py+events', 'py', ['--events'], everything],
  // A server that answers in JSON has no stream to ask on: the plain calls only.
  ['ts+json', 'ts', ['--json'], [plainMatrix, sameBytes, cleanEnd]],
  ['py+json', 'py', ['--json'], [plainMatrix, sameBytes, cleanEnd]],
  ['ts+early-roots', 'ts', ['--ask-roots-early'], [earlyRoots, cleanEnd]]
];
const wanted = process.env.INTEROP_BENCHES?.split(',');

// Benches wait for each other's processes most of the time, so several run side by side; within one, calls come one
// after another, because each looks at what the server counted.
describe('interop', { concurrency: 4 }, () => {
  for (const [label, peer, flags, suites] of benches) {
    if (wanted && !wanted.includes(label)) continue;
    describe(label, { concurrency: 1 }, () => {
      const bench = new Bench(label, peer, flags);
      before(() => bench.start());
      after(() => bench.stop());
      for (const suite of suites) suite(bench);
    });
  }
});
