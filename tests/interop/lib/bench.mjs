// One fixture server, holdfast in front of it, and the four SDK clients: where every comparison is made.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { ANSWERS, FULL } from './cases.mjs';
import { Client, startHoldfast } from './children.mjs';
import { openLegacySession } from './raw-legacy.mjs';
import { startServer } from './servers.mjs';

export const LANGUAGES = ['ts', 'py'];
const PATIENT = { gather_quiet: '500ms', gather_max: '5s' };
const SETTLE_MS_MAX = 10_000;
let lastKey = 0;

/** A word that no other call uses, for tools that remember. */
export const freshKey = () => `key-${(lastKey += 1)}-${process.pid}`;

export class Bench {
  clients = {};
  #raw;

  constructor(label, peer, transport, flags) {
    Object.assign(this, { label, peer, transport, flags });
    for (const language of LANGUAGES)
      for (const era of ['legacy', 'modern']) this.clients[`${era}-${language}`] = new Client(label, `${era}-${language}`);
  }

  async start() {
    this.server = await startServer(this.label, this.peer, this.transport, this.flags);
    this.holdfast = await startHoldfast(this.label, this.server);
    // How far apart a busy machine sends questions of one moment is not what the tests are about: this gateway waits long.
    this.patient = await startHoldfast(`${this.label}-patient`, this.server, PATIENT);
  }

  args(testCase, key) {
    return typeof testCase.args === 'function' ? testCase.args(key) : testCase.args;
  }

  job(server, testCase, { answers, key, capabilities = FULL }) {
    const after = testCase.after ? this.server.waitUrl(`event=${testCase.after}${key}`) : undefined;
    const table = { ...ANSWERS, action: 'accept', ...answers, after };
    const { kind, name, calls, logLevel, uris, changes } = testCase;
    return { server, kind, name, calls, uris, changes, args: this.args(testCase, key), answers: table, logLevel, capabilities };
  }

  /** What a legacy client gets with no gateway between. */
  async truth(language, testCase, options) {
    const waitListening = this.transport === 'http' ? this.server.waitUrl('listening=') : undefined;
    const job = { ...this.job(this.server.direct, testCase, options), waitListening };
    const client = this.clients[`legacy-${testCase.truthBy?.[this.transport] ?? language}`];
    const first = await client.run(job);
    if (!testCase.endsAndRunsAgain) return first;
    // The server ended the call with an error that names its questions, and the client has to call again.
    assert.equal(first.error?.code, -32042);
    const asked = first.error.data.elicitations.map(params => ({ method: 'elicitation/create', params }));
    return { ...(await client.run(job)), asked };
  }

  /** What a modern client gets through holdfast, and how often the server started each tool for it. */
  async through(language, testCase, options, holdfast = this.holdfast) {
    const before = (await this.server.stats()).starts;
    const report = await this.clients[`modern-${language}`].run(this.job(holdfast.direct, testCase, options));
    const after = (await this.server.stats()).starts;
    assert.equal(report.protocol, '2026-07-28', JSON.stringify(report));
    const posts = holdfast.direct.transport === 'http' ? ['POST'] : [];
    assert.deepEqual(Object.keys(report.http), posts, 'a modern client only ever posts');
    return { report, starts: name => (after[name] ?? 0) - (before[name] ?? 0) };
  }

  /** A session without an SDK, the same for all who ask for it. */
  rawSession() {
    this.#raw ??= openLegacySession(this.server.direct);
    return this.#raw;
  }

  /** Ends the sessions that were opened straight to the server and kept. */
  async endDirect() {
    const { direct } = this.server;
    const job = { kind: 'close kept', server: direct, answers: {}, capabilities: {} };
    await Promise.all(LANGUAGES.map(language => direct.keep && this.clients[`legacy-${language}`].run(job)));
    const raw = await this.#raw;
    this.#raw = undefined;
    await raw?.close();
  }

  /** Ends everything whatever state it is in. */
  async stop() {
    await Promise.allSettled(Object.values(this.clients).map(client => client.stop()));
    await Promise.allSettled([this.holdfast?.stop(), this.patient?.stop()]);
    await Promise.allSettled([this.server?.stop()]);
  }
}

/** What the server still has of a client that has gone. It may take a moment to notice. */
async function settled(server) {
  const deadline = Date.now() + SETTLE_MS_MAX;
  for (;;) {
    const { sessions, listening } = await server.stats();
    if ((sessions === 0 && listening === 0) || Date.now() > deadline) return { sessions, listening };
  }
}

/** SIGTERM must end holdfast cleanly, and nothing of it may be left at the server. */
export async function assertStopsCleanly(holdfast, server) {
  const { code, signal } = await holdfast.stop();
  assert.deepEqual({ code, signal }, { code: 0, signal: null }, `see ${holdfast.log}`);
  const left = await settled(server);
  assert.deepEqual(left, { sessions: 0, listening: 0 }, 'what is left at the server');
  const log = readFileSync(holdfast.log, 'utf8');
  assert.ok(!log.includes('panicked'), `holdfast panicked: see ${holdfast.log}`);
}
