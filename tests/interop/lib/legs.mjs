// The legs of a call without an SDK. For every asking call the three cases: the first leg asks under the right keys and
// carries a state, the re-issue completes on yes, the re-issue ends properly on no. Then what a re-issue must not do
// twice, and that results travel as the bytes the server wrote.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshKey } from './bench.mjs';
import { ANSWERS, ASKING, on, PLAIN } from './cases.mjs';
import { comparableQuestion, outcome, questions, withoutKey } from './compare.mjs';
import { memberText, modern, request } from './wire.mjs';
import { makeAnswers } from './worker.mjs';

const STATE_BYTES_MAX = 1024; // the gateway's promise
const ROUNDS_MAX = 10; // clients give up after that many
const SERVER_INFO = 'io.modelcontextprotocol/serverInfo';

async function answersTo(inputRequests, table) {
  const give = makeAnswers(table, { asked: [] });
  const one = ({ method, params }) =>
    method === 'elicitation/create' ? give.elicit(params) : method === 'roots/list' ? give.roots() : give.sample(params);
  const pairs = Object.entries(inputRequests).map(async ([key, question]) => [key, await one(question)]);
  return Object.fromEntries(await Promise.all(pairs));
}

function assertInputRequired(leg) {
  const { result } = leg.message;
  assert.ok(result, leg.text);
  assert.equal(leg.status, 200);
  assert.equal(leg.hasEventIds, false);
  assert.equal(result.resultType, 'input_required', leg.text);
  assert.equal(typeof result.requestState, 'string');
  assert.ok(result.requestState.length <= STATE_BYTES_MAX, `a state of ${result.requestState.length} bytes`);
  return result;
}

export function assertComplete(leg) {
  const { result } = leg.message;
  assert.ok(result, leg.text);
  assert.equal(leg.status, 200);
  assert.equal(result.resultType, 'complete');
  assert.match(result._meta[SERVER_INFO].name, /^holdfast-fixture-/);
  return result;
}

/** Runs a call to its end; `keys` of every round on the way. `moves` says for each leg where the gateway is by then. */
export async function conversation(bench, asking, key, table, moves) {
  const [method, params] = request(asking, bench.args(asking, key));
  const after = asking.after ? bench.server.waitUrl(`event=${asking.after}${key}`) : undefined;
  const rounds = [];
  const asked = [];
  let { url } = moves ? await moves() : asking.together ? bench.patient : bench.holdfast;
  let leg = await modern(url, method, params);
  while (leg.message.result?.resultType === 'input_required') {
    assert.ok(rounds.length < ROUNDS_MAX, 'too many rounds');
    const { inputRequests, requestState } = assertInputRequired(leg);
    rounds.push(Object.keys(inputRequests).sort());
    asked.push(...Object.values(inputRequests));
    const inputResponses = await answersTo(inputRequests, { ...table, after });
    if (moves) ({ url } = await moves());
    leg = await modern(url, method, { ...params, inputResponses, requestState });
  }
  return { rounds, asked, leg };
}

export function threeCases(bench) {
  for (const asking of on(bench.transport, ASKING)) {
    test(`legs: ${asking.label}: the first leg asks, yes completes`, async () => {
      const truthKey = freshKey();
      const key = freshKey();
      const table = { ...ANSWERS, action: 'accept' };
      const truth = await bench.truth('ts', asking, { answers: table, key: truthKey });
      const { rounds, asked, leg } = await conversation(bench, asking, key, table);
      assert.deepEqual(rounds, asking.rounds);
      assert.deepEqual(questions(asked), questions(truth.asked));
      for (const question of asked) assert.equal('elicitationId' in (question.params ?? {}), false);
      const result = assertComplete(leg);
      assert.deepEqual(withoutKey(outcome({ result }), key), withoutKey(outcome(truth), truthKey));
    });

    test(`legs: ${asking.label}: no ends properly`, async () => {
      const truthKey = freshKey();
      const key = freshKey();
      const table = { ...ANSWERS, action: 'decline' };
      const { rounds, leg } = await conversation(bench, asking, key, table);
      assert.deepEqual(rounds[0], asking.rounds[0]);
      const result = assertComplete(leg);
      if (asking.endsAndRunsAgain) return assert.equal(result.isError, true);
      const truth = await bench.truth('ts', asking, { answers: table, key: truthKey });
      return assert.deepEqual(withoutKey(outcome({ result }), key), withoutKey(outcome(truth), truthKey));
    });
  }
}

export function onceOnly(bench) {
  const confirm = { kind: 'tool', name: 'cancel-subscription', args: { subscriptionId: 'sub-9' } };
  const [method, params] = request(confirm, confirm.args);
  const call = more => modern(bench.holdfast.url, method, { ...params, ...more });
  const yes = { confirm: { action: 'accept', content: { confirm: true } } };
  const no = { confirm: { action: 'decline' } };
  const reason = leg => ({ code: leg.message.error?.code, reason: leg.message.error?.data?.reason });

  test('legs: the same re-issue twice at once, and again later, gives one result', async () => {
    const before = (await bench.server.stats()).starts['cancel-subscription'] ?? 0;
    const { requestState } = assertInputRequired(await call({}));
    const again = () => call({ inputResponses: yes, requestState });
    const both = await Promise.all([again(), again()]);
    const results = [...both, await again()].map(assertComplete);
    assert.equal(results[0].content[0].text, 'cancelled sub-9');
    assert.deepEqual(results[1], results[0]);
    assert.deepEqual(results[2], results[0]);
    assert.equal((await bench.server.stats()).starts['cancel-subscription'], before + 1);
  });

  test('legs: other answers to a round that was answered are refused', async () => {
    const { requestState } = assertInputRequired(await call({}));
    assertComplete(await call({ inputResponses: yes, requestState }));
    assert.deepEqual(reason(await call({ inputResponses: no, requestState })), { code: -32602, reason: 'answered' });
  });

  test('legs: a state that was changed, or of another call, is refused and the call goes on', async () => {
    const { requestState } = assertInputRequired(await call({}));
    const flipped = (requestState[20] === 'A' ? 'B' : 'A');
    const changed = requestState.slice(0, 20) + flipped + requestState.slice(21);
    assert.deepEqual(reason(await call({ inputResponses: yes, requestState: changed })), { code: -32602, reason: 'tampered' });
    const other = { ...params, arguments: { subscriptionId: 'sub-10' }, inputResponses: yes, requestState };
    assert.deepEqual(reason(await modern(bench.holdfast.url, method, other)), { code: -32602, reason: 'request' });
    const stranger = { headers: { authorization: 'Bearer someone-else' } };
    const foreign = await modern(bench.holdfast.url, method, { ...params, inputResponses: yes, requestState }, stranger);
    assert.deepEqual(reason(foreign), { code: -32602, reason: 'principal' });
    assert.equal(assertComplete(await call({ inputResponses: yes, requestState })).content[0].text, 'cancelled sub-9');
  });

  test('legs: a missing answer is asked again, a superfluous one is ignored', async () => {
    const both = { kind: 'tool', name: 'two_at_once', args: {} };
    const [, twoParams] = request(both, {});
    const two = more => modern(bench.patient.url, method, { ...twoParams, ...more });
    const first = assertInputRequired(await two({}));
    const green = { color: { action: 'accept', content: { color: 'green' } }, nonsense: { action: 'cancel' } };
    const second = assertInputRequired(await two({ inputResponses: green, requestState: first.requestState }));
    assert.deepEqual(Object.keys(second.inputRequests), ['size']);
    assert.deepEqual(comparableQuestion(second.inputRequests.size), comparableQuestion(first.inputRequests.size));
    const size = { size: { action: 'accept', content: { size: 42 } } };
    const last = assertComplete(await two({ inputResponses: size, requestState: second.requestState }));
    assert.match(last.content[0].text, /color="green" size=42/);
  });
}

/** Results travel as they came: what holdfast adds stands beside the members, which keep their bytes. */
export function sameBytes(bench) {
  const listed = new Set(['prompts', 'resources', 'templates', 'tools']);
  // The TypeScript server's tools carry the legacy-only member `execution`, which has to go.
  const left = plain => plain.kind !== 'discover' && !(plain.kind === 'tools' && bench.peer === 'ts');
  for (const plain of on(bench.transport, PLAIN).filter(left))
    test(`bytes: ${plain.label}`, async () => {
      const [method, params] = request(plain, plain.args);
      const session = await bench.rawSession();
      const truth = await session.call(method, params);
      const leg = await modern(bench.holdfast.url, method, params);
      if (truth.message.error) {
        assert.deepEqual(leg.message.error, truth.message.error);
        return;
      }
      const result = assertComplete(leg);
      if (listed.has(plain.kind)) {
        assert.equal(typeof result.ttlMs, 'number');
        assert.match(result.cacheScope, /^(public|private)$/);
      }
      const ours = memberText(leg.text, 'result');
      for (const member of Object.keys(truth.message.result)) {
        if (member === '_meta') continue; // merged with what the modern era puts there; compared by the matrix
        assert.ok(memberText(ours, member) === memberText(memberText(truth.text, 'result'), member), `${member} was changed`);
      }
    });
}
