// Real programs behind holdfast: discovery, every list, the calls of ../real/programs.mjs and all that they ask, compared
// with what a legacy client gets from the same program over the same transport.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { freshKey, LANGUAGES } from './bench.mjs';
import { ANSWERS, FULL } from './cases.mjs';
import { Child, Client, HERE, RUN_MARK, startHoldfast } from './children.mjs';
import { outcome, questions, withoutKey } from './compare.mjs';
import { MARK, marked } from './marked.mjs';
import { byCommand, byUrl } from './servers.mjs';
import { openLegacySession } from './raw-legacy.mjs';
import { startSite } from './site.mjs';
import { modern, request } from './wire.mjs';

const LISTS = { tools: 'tools', prompts: 'prompts', resources: 'resources', templates: 'resources' };
const GONE_MS_MAX = 10_000; // for a program to end after its client has
const PYTHON = path.join(HERE, 'real/.venv/bin/python');

/** The SDK clients, shared by all programs: these come one after another. */
export class RealClients {
  clients = Object.fromEntries(['legacy', 'modern'].flatMap(era => LANGUAGES.map(language => `${era}-${language}`))
    .map(kind => [kind, new Client('real', kind)]));

  run(kind, job) {
    return this.clients[kind].run(job);
  }

  async stop() {
    await Promise.allSettled(Object.values(this.clients).map(client => client.stop()));
  }
}

/** A value, or what a function makes of the rest. */
const given = (value, ...from) => (typeof value === 'function' ? value(...from) : value);

export class RealBench {
  #raw;

  constructor(program, clients) {
    Object.assign(this, program, { clients });
    this.mark = `${RUN_MARK}-${program.label}`;
    this.place = { home: mkdtempSync(path.join(os.tmpdir(), `holdfast-${program.label}-`)) };
  }

  async start() {
    if (this.site) this.place.site = (this.web = await startSite()).url;
    this.prepare?.(this.place);
    this.server = this.transport === 'stdio' ? byCommand(this.command()) : await this.listening();
    this.server.direct.keep = true;
    this.holdfast = await startHoldfast(this.label, this.server);
  }

  /** The environment is the same whoever starts the program: nothing but what stands here. */
  command(before = []) {
    const { node, python, args, env } = this.program;
    const variables = { PATH: process.env.PATH, HOME: this.place.home, [MARK]: this.mark, ...given(env, this.place) };
    const main = node
      ? [process.execPath, ...before, path.join(HERE, 'real/node_modules', node, 'dist/index.js')]
      : [PYTHON, '-m', python];
    return ['env', '-i', ...Object.entries(variables).map(pair => pair.join('=')), ...main, ...given(args, this.place)];
  }

  async listening() {
    const [program, ...args] = this.command(['--import', path.join(HERE, 'lib/loopback.mjs')]);
    this.child = new Child(`server-${this.label}`, program, args);
    this.child.stdout.resume();
    const [, port] = await this.child.line(this.child.stderr, /^listening on (\d+)$/);
    return byUrl(this.transport, `http://127.0.0.1:${port}${{ sse: '/sse', http: '/mcp' }[this.transport]}`);
  }

  job(server, testCase, { key, action = 'accept', roots = ANSWERS.roots } = {}) {
    const { kind, name, args, calls, uris, changes, until, fields = {}, capabilities = FULL } = testCase;
    const answers = { ...ANSWERS, fields: { ...ANSWERS.fields, ...fields }, action, roots };
    return { server, kind, name, args: given(args, key), calls, uris, changes, until, capabilities, answers };
  }

  truth(language, testCase, options) {
    return this.clients.run(`legacy-${testCase.truthBy ?? language}`, this.job(this.server.direct, testCase, options));
  }

  async through(language, testCase, options) {
    const report = await this.clients.run(`modern-${language}`, this.job(this.holdfast.direct, testCase, options));
    assert.equal(report.protocol, '2026-07-28', JSON.stringify(report));
    return report;
  }

  rawSession() {
    this.#raw ??= openLegacySession(this.server.direct);
    return this.#raw;
  }

  async endDirect() {
    const job = { kind: 'close kept', server: this.server.direct, answers: {}, capabilities: {} };
    await Promise.all(LANGUAGES.map(language => this.clients.run(`legacy-${language}`, job)));
    await (await this.#raw)?.close();
  }

  async stop() {
    await Promise.allSettled([this.holdfast?.stop(), this.web?.stop(), this.child?.stop(p => p.kill('SIGTERM'))]);
    rmSync(this.place.home, { recursive: true, force: true });
  }
}

// The Python SDK 1.x hands on what a server adds to these, 2.x leaves it out; a server of 2025 adds things of its own.
const CONTENTS = ['uri', 'mimeType', 'text', 'blob', '_meta'];
const RESOURCE = ['uri', 'name', 'title', 'description', 'mimeType', 'size', 'annotations', 'icons', '_meta'];
const only = (members, object) => Object.fromEntries(Object.entries(object).filter(([name]) => members.includes(name)));

function known(language, { result, ...rest }) {
  if (language !== 'py' || !result) return { result, ...rest };
  const content = block => (block.resource ? { ...block, resource: only(CONTENTS, block.resource) } : block);
  if (result.contents) result.contents = result.contents.map(contents => only(CONTENTS, contents));
  if (result.resources) result.resources = result.resources.map(resource => only(RESOURCE, resource));
  if (Array.isArray(result.content)) result.content = result.content.map(content);
  if (result.messages) result.messages = result.messages.map(message => ({ ...message, content: content(message.content) }));
  return { result, ...rest };
}

/** What a person sees of a report: the outcome without what is different each time. */
function seen(language, report, { scrub = [] }, key) {
  const text = JSON.stringify(withoutKey(known(language, outcome(report)), key ?? 'KEY'));
  return JSON.parse(scrub.reduce((whole, [pattern, replacement]) => whole.replaceAll(pattern, replacement), text));
}

// Roots are asked for whenever a program likes, in no call or in any; they have a test of their own.
const inCall = asked => questions(asked).filter(({ method }) => method !== 'roots/list');

export function discovery(bench) {
  for (const language of LANGUAGES)
    test(`${language} client: discovery and lists`, async () => {
      const discover = { kind: 'discover' };
      const truth = await bench.truth(language, discover);
      assert.deepEqual(outcome(await bench.through(language, discover)), outcome(truth));
      for (const [kind, capability] of Object.entries(LISTS)) {
        const list = { kind, args: {} };
        if (truth.result.capabilities[capability] === undefined) await refusedAlike(bench, list);
        else await compared(bench, language, list, {});
      }
    });
}

/** A list that the program does not offer: SDK clients may not even ask for it, so nobody's client does. */
async function refusedAlike(bench, list) {
  const [method, params] = request(list, {});
  const truth = await (await bench.rawSession()).call(method, params);
  const leg = await modern(bench.holdfast.url, method, params, { capabilities: {} });
  assert.deepEqual(leg.message.error, truth.message.error, method);
}

export function calls(bench) {
  // The cases are known before the bench has started, but not yet what stands in them.
  for (const [index, testCase] of given(bench.cases, bench.place).entries())
    for (const way of testCase.ways ?? [{}])
      for (const language of LANGUAGES) {
        const label = [testCase.label ?? testCase.name ?? testCase.args.argument.name, way.action].filter(Boolean).join(': ');
        test(`${language} client: ${testCase.kind} ${label}`, () => compared(bench, language, given(bench.cases, bench.place)[index], way));
      }
}

async function compared(bench, language, testCase, way) {
  const [truthKey, key] = [freshKey(), freshKey()];
  let truth = await bench.truth(language, testCase, { ...way, key: truthKey });
  if (testCase.endsAndRunsAgain) {
    assert.equal(truth.error?.code, -32042, JSON.stringify(truth));
    const asked = truth.error.data.elicitations.map(params => ({ method: 'elicitation/create', params }));
    const again = await bench.truth(language, testCase, { ...way, key: truthKey });
    truth = { ...again, asked: [...asked, ...again.asked] };
  }
  const report = await bench.through(language, testCase, { ...way, key });
  assert.deepEqual(seen(language, report, testCase, key), seen(language, truth, testCase, truthKey));
  assert.deepEqual(inCall(report.asked), inCall(truth.asked));
  assert.deepEqual(report.progress, truth.progress);
  if (testCase.asks) assert.equal(inCall(truth.asked).length, testCase.asks, 'what the program asks');
  if (testCase.progress) assert.equal(truth.progress.length, testCase.progress, 'what the program tells');
}

/** Roots that are asked for in no call are asked in the first one of a client that declares them. */
export function roots(bench) {
  if (!bench.earlyRoots) return;
  const { roots: answered, call } = bench.earlyRoots(bench.place);
  const capabilities = { roots: {} };
  // Each SDK declares roots in its own way, so that each has a session, and a process, of its own.
  for (const language of LANGUAGES)
    test(`${language} client: roots take the place of the folders on the command line`, async () => {
      const truth = await bench.truth(language, { ...call, capabilities }, { roots: answered });
      // Through the gateway it is known when the call goes up; directly, some time later.
      const first = { ...call, capabilities, until: undefined };
      const report = await bench.through(language, first, { roots: answered });
      assert.deepEqual(outcome(report), outcome(truth));
      assert.deepEqual(report.asked, [{ method: 'roots/list' }]);
    });
}

export function subscription(bench) {
  if (!bench.listens) return;
  for (const language of LANGUAGES)
    test(`${language} client: a change is heard of`, async () => {
      const listening = () => ({ kind: 'listen', ...bench.listens(freshKey()) });
      const truth = await bench.truth(language, listening());
      assert.equal(truth.error, null, JSON.stringify(truth.error));
      assert.deepEqual(outcome(await bench.through(language, listening())), outcome(truth));
    });
}

/** SIGTERM ends holdfast, and with it every process of the program that it has started. */
export function realEnd(bench) {
  test('SIGTERM: exit 0, no process is left', async () => {
    await bench.endDirect();
    const { code, signal } = await bench.holdfast.stop();
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, `see ${bench.holdfast.log}`);
    assert.ok(!readFileSync(bench.holdfast.log, 'utf8').includes('panicked'), `holdfast panicked: see ${bench.holdfast.log}`);
    const known = new Set([bench.child?.process.pid]);
    const left = () => marked(bench.mark).filter(pid => !known.has(pid));
    const deadline = Date.now() + GONE_MS_MAX;
    while (left().length > 0 && Date.now() < deadline) await new Promise(setImmediate);
    assert.deepEqual(left(), [], 'processes of the program');
  });
}
