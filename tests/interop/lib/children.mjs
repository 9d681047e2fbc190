// The processes of a run: fixture servers, SDK clients and holdfast itself. Each is started on a free port of 127.0.0.1,
// waited for by the line it prints, and ended whatever happens (see reaper.mjs for the worst case).
import { spawn } from 'node:child_process';
import { createWriteStream, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';

export const HERE = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const ROOT = path.dirname(path.dirname(HERE));
const RESULTS = path.join(HERE, '.results');
export const READY_MS_MAX = 30_000; // A cold Python interpreter on a busy machine takes a few seconds.
const JOB_MS_MAX = 40_000; // Above every wait inside of a job (15 s), so that the job's own error is seen first.
const STOP_MS_MAX = 30_000;

export const PYTHON = { legacy: path.join(HERE, 'legacy-py/.venv/bin/python'), modern: path.join(HERE, 'modern-py/.venv/bin/python') };
const CLIENTS = {
  'legacy-ts': [process.execPath, ['legacy-ts/client.mjs']],
  'legacy-py': [PYTHON.legacy, ['legacy-py/client.py']],
  'modern-ts': [process.execPath, ['modern-ts/client.mjs']],
  'modern-py': [PYTHON.modern, ['modern-py/client.py']]
};

export function holdfastBinary() {
  const target = process.env.CARGO_TARGET_DIR ?? path.join(ROOT, 'target');
  const binary = process.env.HOLDFAST_BIN ?? path.join(target, 'debug/holdfast');
  if (!existsSync(binary)) throw new Error(`no holdfast at ${binary}: run \`cargo build\` or set HOLDFAST_BIN`);
  return binary;
}

mkdirSync(RESULTS, { recursive: true });
const reaper = spawn(process.execPath, [path.join(HERE, 'lib/reaper.mjs')], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
reaper.unref();
/** What all that this run has started may be known by; see marked.mjs. */
export const RUN_MARK = `${process.pid}-${Date.now()}`;
reaper.stdin.write(`=${RUN_MARK}\n`);
reaper.stdin.unref?.();
const running = new Set();
process.on('exit', () => running.forEach(child => child.process.kill('SIGKILL')));

/** One child process, started in this folder; what it says on standard error is kept in .results/NAME.log. */
export class Child {
  constructor(name, command, args) {
    this.name = name;
    this.log = path.join(RESULTS, `${name}.log`);
    this.process = spawn(command, args, { cwd: HERE, stdio: ['pipe', 'pipe', 'pipe'] });
    this.stdout = readline.createInterface({ input: this.process.stdout });
    this.stderr = readline.createInterface({ input: this.process.stderr });
    const log = createWriteStream(this.log);
    this.stderr.on('line', line => log.write(`${line}\n`));
    this.process.stdin.on('error', () => {}); // a child that is gone is noticed by `ended`
    running.add(this);
    if (this.process.pid) reaper.stdin.write(`+${this.process.pid}\n`);
    this.ended = new Promise(resolve => {
      const done = outcome => {
        running.delete(this);
        if (this.process.pid) reaper.stdin.write(`-${this.process.pid}\n`);
        log.end(() => resolve(outcome));
      };
      this.process.once('error', error => done({ code: null, signal: null, error }));
      this.process.once('close', (code, signal) => done({ code, signal }));
    });
  }

  /** The match of the first line that matches; fails if the child ends or READY_MS_MAX pass first. */
  line(lines, pattern) {
    return new Promise((resolve, reject) => {
      const fail = why => reject(new Error(`${this.name} ${why}; see ${this.log}`));
      const timer = setTimeout(() => fail(`printed no line ${pattern} in time`), READY_MS_MAX);
      this.ended.then(({ code, signal, error }) => fail(`ended too early: ${error ?? `code ${code}, signal ${signal}`}`));
      lines.on('line', line => {
        const match = pattern.exec(line);
        if (!match) return;
        clearTimeout(timer);
        resolve(match);
      });
    });
  }

  /** Asks the child to end, waits for it, kills it only after STOP_MS_MAX. */
  async stop(ask) {
    const timer = setTimeout(() => this.process.kill('SIGKILL'), STOP_MS_MAX);
    ask(this.process);
    const outcome = await this.ended;
    clearTimeout(timer);
    return outcome;
  }
}

/** The gateway in front of a server; with `timers`, `backend` or `top`, by a configuration file that sets them. */
export async function startHoldfast(name, server, timers, backend, top) {
  let where = server.upstream;
  if (timers || backend || top) {
    const table = values => Object.entries(values ?? {}).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
    const file = path.join(RESULTS, `${name}.toml`);
    const lines = [...table(top), '[timers]', ...table(timers), '[[backend]]', ...table({ name: 'fixture', ...server.backend, ...backend }), ''];
    writeFileSync(file, lines.join('\n'));
    where = ['--config', file];
  }
  const args = ['serve', '--listen', '127.0.0.1:0', ...where];
  const child = new Child(`holdfast-${name}`, holdfastBinary(), args);
  const [, url] = await child.line(child.stderr, /holdfast listening on (http:\/\/\S+\/mcp)$/);
  const stop = signal => child.stop(p => p.kill(signal));
  return { url, direct: { transport: 'http', url }, log: child.log, ended: child.ended, stop: () => stop('SIGTERM'), kill: () => stop('SIGKILL') };
}

/** One SDK client process that does one job after another; it is started when first needed, and again if it got stuck. */
export class Client {
  #child;
  #waiting = new Map(); // job id -> { resolve, reject }
  #lastId = 0;

  constructor(name, kind) {
    this.name = name;
    this.kind = kind;
  }

  #start() {
    const [command, args] = CLIENTS[this.kind];
    const child = new Child(`${this.kind}-${this.name}`, command, args);
    child.stdout.on('line', line => {
      const report = JSON.parse(line);
      this.#waiting.get(report.id)?.resolve(report);
      this.#waiting.delete(report.id);
    });
    child.ended.then(() => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`${child.name} ended in mid-job; see ${child.log}`));
      this.#waiting.clear();
      if (this.#child === child) this.#child = undefined;
    });
    return child;
  }

  async run(job) {
    this.#child ??= this.#start();
    const child = this.#child;
    this.#lastId += 1;
    const id = this.#lastId;
    const reply = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    const timer = setTimeout(() => {
      this.#waiting.get(id)?.reject(new Error(`${child.name} got no end of job ${JSON.stringify(job).slice(0, 300)}`));
      this.#waiting.delete(id);
      if (this.#child === child) this.#child = undefined;
      child.process.kill('SIGKILL');
    }, JOB_MS_MAX);
    child.process.stdin.write(`${JSON.stringify({ id, ...job })}\n`);
    try {
      return await reply;
    } finally {
      clearTimeout(timer);
    }
  }

  stop() {
    return this.#child?.stop(p => p.stdin.end());
  }
}
