// The fixture servers, over every legacy transport, and the ways to them: `direct` is what a job gives to a legacy client,
// `upstream` and `backend` are how holdfast is told, on its command line and in a configuration file.
import path from 'node:path';
import { Child, HERE, PYTHON, READY_MS_MAX } from './children.mjs';
import { LedgerService } from './ledger.mjs';

const PROGRAMS = {
  ts: [process.execPath, path.join(HERE, 'legacy-ts/server.mjs')],
  py: [PYTHON.legacy, path.join(HERE, 'legacy-py/server.py')]
};
const ENDPOINTS = { http: 'http /mcp', sse: 'http /sse', websocket: 'ws /ws' };

async function json(url) {
  const response = await fetch(url, { signal: AbortSignal.timeout(READY_MS_MAX) });
  return { ok: response.ok, body: await response.json() };
}

/** What the tests ask a ledger, wherever it is. */
const ledgerAt = base => ({
  waitUrl: query => `${base}/wait?${query}`,
  stats: async () => (await json(`${base}/stats`)).body,
  wait: async query => (await json(`${base}/wait?${query}`)).ok
});

/** A server that is reached by its URL. */
export const byUrl = (transport, url) => ({ direct: { transport, url }, upstream: ['--upstream', url], backend: { legacy: url } });

/** A server that each client starts for itself. */
export const byCommand = command => ({
  direct: { transport: 'stdio', command }, upstream: ['--', ...command], backend: { command }
});

/** A fixture server: `peer` is `ts` or `py`, `transport` `http`, `sse`, `websocket` or `stdio`. */
export async function startServer(name, peer, transport, flags) {
  const command = [...PROGRAMS[peer], '--transport', transport, ...flags];
  if (transport === 'stdio') return overStdio(command);
  const [program, ...args] = command;
  const child = new Child(`server-${name}`, program, args);
  const [, port] = await child.line(child.stdout, /^listening on (\d+)$/);
  const [scheme, endpoint] = ENDPOINTS[transport].split(' ');
  return {
    transport,
    ...byUrl(transport, `${scheme}://127.0.0.1:${port}${endpoint}`),
    ...ledgerAt(`http://127.0.0.1:${port}`),
    stop: () => child.stop(p => p.stdin.end())
  };
}

/** Nothing is started before a client does; the processes count in a ledger of ours. */
async function overStdio(command) {
  const ledger = new LedgerService();
  await ledger.start();
  const reached = byCommand([...command, '--ledger', ledger.base]);
  // A legacy client keeps its process: starting one for every call would take most of the time of a run.
  reached.direct.keep = true;
  return { transport: 'stdio', ...reached, ...ledgerAt(ledger.base), stop: () => ledger.stop() };
}
