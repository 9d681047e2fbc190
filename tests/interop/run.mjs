// Real SDK peers on both sides of the real holdfast binary: what a modern client gets through it from a legacy server
// must equal what a legacy client gets from that server directly. See README.md.
// usage: node --test tests/interop/run.mjs   (INTEROP_BENCHES=ts,py+events picks benches, HOLDFAST_BIN the binary)
import { after, before, describe } from 'node:test';
import { Bench } from './lib/bench.mjs';
import { changes, declined, mirrored, remembered, stretched } from './lib/everything.mjs';
import { overStdio } from './lib/front.mjs';
import { onceOnly, sameBytes, threeCases } from './lib/legs.mjs';
import { cleanEnd, disconnects, earlyRoots, heldAtTheEnd } from './lib/lifecycle.mjs';
import { programs } from './real/programs.mjs';
import { askingMatrix, burstMatrix, capabilityMatrix, plainMatrix } from './lib/matrix.mjs';
import { replay, survival } from './lib/survival.mjs';
import { calls, discovery, RealBench, RealClients, realEnd, roots, subscription } from './lib/real.mjs';

const everything = [
  plainMatrix, askingMatrix, capabilityMatrix, burstMatrix, threeCases, onceOnly, sameBytes, changes, mirrored, stretched,
  declined, remembered, disconnects, cleanEnd, heldAtTheEnd
];
const early = [earlyRoots, cleanEnd];
const benches = [
  ['ts', 'ts', 'http', [], everything],
  ['ts+events', 'ts', 'http', ['--events'], everything],
  ['ts+survival', 'ts', 'http', ['--events'], [survival]],
  ['py', 'py', 'http', [], everything],
  ['py+events', 'py', 'http', ['--events'], everything],
  ['py+survival', 'py', 'http', ['--events'], [survival]],
  ['ts+replay', 'ts', 'http', [], [replay]],
  ['py+replay', 'py', 'http', [], [replay]],
  ['py-stdio+replay', 'py', 'stdio', [], [replay]],
  // A server that answers in JSON has no stream to ask on: the plain calls only.
  ['ts+json', 'ts', 'http', ['--json'], [plainMatrix, sameBytes, cleanEnd]],
  ['py+json', 'py', 'http', ['--json'], [plainMatrix, sameBytes, cleanEnd]],
  ['ts+early-roots', 'ts', 'http', ['--ask-roots-early'], early],
  // Modern clients that start `holdfast stdio` themselves.
  ['ts-front', 'ts', 'http', [], [overStdio, cleanEnd]],
  ['py-front', 'py', 'http', [], [overStdio, cleanEnd]],
  ['ts-stdio', 'ts', 'stdio', [], everything],
  ['py-stdio', 'py', 'stdio', [], everything],
  ['ts-sse', 'ts', 'sse', [], everything],
  ['py-sse', 'py', 'sse', [], everything],
  ['py-websocket', 'py', 'websocket', [], everything],
  ['ts-sse+early-roots', 'ts', 'sse', ['--ask-roots-early'], early],
  ['ts-stdio+early-roots', 'ts', 'stdio', ['--ask-roots-early'], early]
];
const wanted = process.env.INTEROP_BENCHES?.split(',');

// Benches wait for each other's processes most of the time, so several run side by side; within one, calls come one
// after another, because each looks at what the server counted.
describe('interop', { concurrency: 4 }, () => {
  for (const [label, peer, transport, flags, suites] of benches) {
    if (wanted && !wanted.includes(label)) continue;
    describe(label, { concurrency: 1 }, () => {
      const bench = new Bench(label, peer, transport, flags);
      before(() => bench.start());
      after(() => bench.stop());
      for (const suite of suites) suite(bench);
    });
  }

  describe('real programs', { concurrency: 1 }, () => {
    const clients = new RealClients();
    after(() => clients.stop());
    for (const program of programs) {
      if (wanted && !wanted.includes(program.label)) continue;
      describe(program.label, { concurrency: 1 }, () => {
        const bench = new RealBench(program, clients);
        before(() => bench.start());
        after(() => bench.stop());
        for (const suite of [discovery, calls, roots, subscription, realEnd]) suite(bench);
      });
    }
  });
});
