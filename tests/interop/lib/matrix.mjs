// The matrix: every kind of call, every way of answering, with both modern SDKs through holdfast, compared with what the
// legacy client of the same language gets from the same server directly.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshKey, LANGUAGES } from './bench.mjs';
import { ASKING, FULL, on, PLAIN, variants } from './cases.mjs';
import { logsFrom, outcome, questions, withoutKey } from './compare.mjs';

export function plainMatrix(bench) {
  for (const language of LANGUAGES)
    for (const plain of on(bench.transport, PLAIN))
      test(`${language} client: ${plain.label}`, async () => {
        const truth = await bench.truth(language, plain, {});
        const { report, starts } = await bench.through(language, plain, {});
        assert.deepEqual(outcome(report), outcome(truth));
        assert.deepEqual(report.asked, []);
        if (plain.kind === 'tool') assert.equal(starts(plain.name), plain.starts);
      });
}

export function askingMatrix(bench) {
  for (const language of LANGUAGES)
    for (const asking of on(bench.transport, ASKING))
      for (const { variant, answers } of variants(asking))
        test(`${language} client: ${asking.label}: ${variant}`, () => {
          const refusesVisit = asking.endsAndRunsAgain && answers.action !== 'accept';
          return refusesVisit ? refusedVisit(bench, language, asking, answers) : compared(bench, language, asking, answers);
        });
}

async function compared(bench, language, asking, answers) {
  const truthKey = freshKey();
  const key = freshKey();
  const truth = await bench.truth(language, asking, { answers: { ...answers, invalidFirst: false }, key: truthKey });
  const { report, starts } = await bench.through(language, asking, { answers, key });

  assert.deepEqual(withoutKey(outcome(report), key), withoutKey(outcome(truth), truthKey));
  // An answer that does not fit is not forwarded: the same question comes once more.
  const expected = answers.invalidFirst ? [...truth.asked, ...truth.asked] : truth.asked;
  assert.ok(expected.length > 0, 'the truth was asked something');
  assert.deepEqual(questions(report.asked), questions(expected));
  assert.deepEqual(report.progress, truth.progress);
  assert.deepEqual(report.logs, logsFrom(truth.logs, asking.logLevel));
  assert.equal(starts(asking.counted ?? asking.name), asking.starts);
}

/** A person who refuses the visit that error −32042 wants: the call ends, and the tool is not run again for nothing. */
async function refusedVisit(bench, language, asking, answers) {
  const { report, starts } = await bench.through(language, asking, { answers, key: freshKey() });
  assert.equal(report.error, null);
  assert.equal(report.result.isError, true);
  assert.equal(report.asked.length, 1);
  assert.equal(starts(asking.name), 1);
}

export function capabilityMatrix(bench) {
  const confirm = { kind: 'tool', name: 'cancel-subscription', args: {} };
  const visit = { kind: 'tool', name: 'url_auth', args: {} };

  test('ts client: elicitation declared as {} means forms', async () => {
    const capabilities = { elicitation: {} };
    const truth = await bench.truth('ts', confirm, { capabilities });
    const { report } = await bench.through('ts', confirm, { capabilities });
    assert.deepEqual(outcome(report), outcome(truth));
    assert.equal(report.asked.length, 1);
  });

  const lacking = [
    ['no capabilities, a form', confirm, {}, { elicitation: {} }],
    ['sampling only, a form', confirm, { sampling: {} }, { elicitation: {} }],
    ['forms only, a visit', visit, { elicitation: { form: {} } }, { elicitation: { url: {} } }]
  ];
  for (const [label, testCase, capabilities, required] of lacking)
    test(`ts client: ${label}`, async () => {
      const truth = await bench.truth('ts', testCase, { capabilities });
      const { report } = await bench.through('ts', testCase, { capabilities });
      assert.deepEqual(report.asked, []);
      if (bench.peer === 'ts') {
        // This SDK looks at the capabilities itself and does not even ask.
        assert.deepEqual(outcome(report), outcome(truth));
      } else {
        // This one asks regardless; a modern client is told what it would have to declare.
        assert.equal(report.error?.code, -32021, JSON.stringify(report));
        const [feature] = Object.keys(required);
        assert.ok(feature in report.error.data.requiredCapabilities, JSON.stringify(report.error.data));
        for (const mode of Object.keys(required[feature])) assert.ok(mode in report.error.data.requiredCapabilities[feature]);
      }
    });
}

/** Many calls at once over one client: each answer must reach the call that asked. */
export function burstMatrix(bench) {
  const calls = Array.from({ length: 12 }, (_, n) => ({ name: 'echo_word', args: { id: `b-${n}`, related: n % 3 !== 0 } }));
  for (const language of LANGUAGES)
    test(`${language} client: twelve calls at once, each with its own answer`, async () => {
      const burst = { kind: 'burst', calls };
      const { report, starts } = await bench.through(language, burst, { capabilities: FULL });
      assert.equal(report.error, null, JSON.stringify(report.error));
      const said = report.result.map(result => result.content[0].text);
      assert.deepEqual(said, calls.map(({ args }) => `${args.id} got "Word for ${args.id}?"`));
      assert.equal(starts('echo_word'), calls.length);
    });
}
