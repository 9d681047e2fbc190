// What the JavaScript clients share: a loop that reads one job a line and writes one report a line, and the answers to
// what a server asks. A job is {id, url, kind, name, args, answers, logLevel, capabilities, ...}; see ../README.md.
import readline from 'node:readline';

const plain = value => JSON.parse(JSON.stringify(value ?? null));

/** Answers from the job's table; what was asked is written down in the report. */
export function makeAnswers(table, report) {
  const wrongGiven = new Set();

  async function elicit(params) {
    report.asked.push({ method: 'elicitation/create', params: plain(params) });
    if (table.after) await fetch(table.after);
    if (table.action !== 'accept') return { action: table.action };
    if (params.mode === 'url') return { action: 'accept' };
    const wrong = table.invalidFirst && !wrongGiven.has(params.message);
    wrongGiven.add(params.message);
    const fields = wrong ? { ...table.fields, ...table.wrong } : table.fields;
    const names = Object.keys(params.requestedSchema.properties).filter(name => name in fields);
    return { action: 'accept', content: Object.fromEntries(names.map(name => [name, filled(fields[name], params)])) };
  }

  function sample(params) {
    report.asked.push({ method: 'sampling/createMessage', params: plain(params) });
    const text = table.action === 'accept' ? table.sample : 'I would rather not.';
    return { role: 'assistant', model: 'fixture-model', stopReason: 'endTurn', content: { type: 'text', text } };
  }

  function roots() {
    report.asked.push({ method: 'roots/list' });
    return { roots: table.action === 'accept' ? table.roots : [] };
  }

  return { elicit, sample, roots };
}

/** `$message` stands for the question itself: it shows whether each answer reached the call that asked. */
const filled = (value, params) => (value === '$message' ? params.message : value);

/** What a client is told of changes: `[method, uri]` each, until as many as expected have come. */
export class Heard {
  changes = [];
  #expected;
  #isEnough;
  #enough = new Promise(resolve => { this.#isEnough = resolve; });

  constructor(expected) {
    this.#expected = expected;
  }

  add(method, uri = null) {
    this.changes.push([method, uri]);
    if (this.changes.length === this.#expected) this.#isEnough();
  }

  /** All of them, in an order that does not depend on which came first. */
  async all() {
    await this.#enough;
    return this.changes.sort();
  }
}

const REPEATS_MAX = 100; // each is a round trip: far longer than a server needs to take in an answer

/** Makes the call until its result has the word in it, if there is one; then gives the result as it is. */
export async function repeated(until, call) {
  let result = await call();
  for (let again = 0; until && again < REPEATS_MAX && !JSON.stringify(result).includes(until); again += 1) result = await call();
  return result;
}

/** Runs `calls` at the same time and gives their results in the same order. */
export const burst = (calls, one) => Promise.all(calls.map(one));

/** Runs jobs until standard input ends; `end` closes what was kept between them. */
export async function serve(run, end = async () => {}) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    const report = { id: job.id, result: null, error: null, protocol: null, asked: [], progress: [], logs: [], http: {} };
    const http = (input, init) => {
      const method = (init?.method ?? 'GET').toUpperCase();
      report.http[method] = (report.http[method] ?? 0) + 1;
      return fetch(input, init);
    };
    try {
      report.result = plain(await run(job, report, http));
    } catch (error) {
      report.error = plain({ name: error.name, code: error.code ?? null, message: error.message, data: error.data ?? null });
    }
    process.stdout.write(`${JSON.stringify(report)}\n`);
  }
  await end();
  process.exit(0);
}
