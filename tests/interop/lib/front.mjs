// Modern clients that speak over stdio and start `holdfast stdio` themselves, in front of the server of a bench: a call of
// each kind, compared as ever with what a legacy client gets directly.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshKey, LANGUAGES } from './bench.mjs';
import { ANSWERS, ASKING, PLAIN } from './cases.mjs';
import { holdfastBinary } from './children.mjs';
import { outcome, questions } from './compare.mjs';

const labels = ['plain_add', 'big_result', 'an unknown prompt', 'tools/list', 'server/discover'];
const asked = ['cancel-subscription', 'refund', 'slow_progress', 'all_at_once', 'eliciting_prompt', 'secret'];

export function overStdio(bench) {
  const front = () => ({ direct: { transport: 'stdio', command: [holdfastBinary(), 'stdio', ...bench.server.upstream] } });
  for (const language of LANGUAGES) {
    for (const plain of PLAIN.filter(({ label }) => labels.includes(label)))
      test(`${language} client over stdio: ${plain.label}`, async () => {
        const truth = await bench.truth(language, plain, {});
        const { report } = await bench.through(language, plain, {}, front());
        assert.deepEqual(outcome(report), outcome(truth));
      });

    for (const asking of ASKING.filter(({ label }) => asked.includes(label)))
      for (const action of ['accept', 'decline'])
        test(`${language} client over stdio: ${asking.label}: ${action}`, async () => {
          const options = { answers: { ...ANSWERS, action }, key: freshKey() };
          const truth = await bench.truth(language, asking, options);
          const { report, starts } = await bench.through(language, asking, options, front());
          assert.deepEqual(outcome(report), outcome(truth));
          assert.deepEqual(questions(report.asked), questions(truth.asked));
          // The TypeScript SDK drops progress that comes in one piece with the result, which over stdio is common.
          const told = truth.progress.slice(0, language === 'ts' ? report.progress.length : undefined);
          assert.deepEqual(report.progress, told);
          assert.equal(starts(asking.counted ?? asking.name), 1);
        });

    test(`${language} client over stdio: a changed resource and changed tools are heard of`, async () => {
      const call = name => ({ name, args: {} });
      const listening = { kind: 'listen', uris: ['fixture://counter'], calls: [call('bump'), call('toggle')], changes: 2 };
      const truth = await bench.truth(language, listening, {});
      const { report } = await bench.through(language, listening, {}, front());
      assert.deepEqual(outcome(report), outcome(truth));
      assert.deepEqual(report.honoured, { toolsListChanged: true, resourceSubscriptions: ['fixture://counter'] });
    });
  }
}
