// What must be equal between a call straight at the legacy server and the same call through holdfast, and what the
// protocol itself makes different. Only the latter is taken out, by name.

const SERVER_INFO = 'io.modelcontextprotocol/serverInfo';
const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];

/** A result without what each era adds to it: the rest must be the same. */
export function outcome(report) {
  if (report.error) return { error: comparableError(report.error) };
  const result = structuredClone(report.result);
  delete result.resultType;
  delete result.ttlMs;
  delete result.cacheScope;
  if (result._meta) {
    delete result._meta[SERVER_INFO];
    if (Object.keys(result._meta).length === 0) delete result._meta;
  }
  for (const tool of result.tools ?? []) delete tool.execution; // legacy only: tasks
  if (result.capabilities) delete result.capabilities.tasks;
  return { result };
}

/** The SDKs put `MCP error CODE: ` before a message, some twice; error −32002 is −32602 in the modern era. */
function comparableError({ code, message, data }) {
  const bare = message.replace(/^(MCP error -?\d+: )+/, '');
  return { code: code === -32002 ? -32602 : code, message: bare, data: data ?? null };
}

/** The questions, in an order that does not depend on which of several at once came first. */
export const questions = asked => asked.map(comparableQuestion).sort((a, b) => (said(a) < said(b) ? -1 : 1));

/** What a question is about, whatever order its members stand in. */
const said = ({ method, params = {} }) => JSON.stringify([method, params.message, params.messages]);

export function comparableQuestion({ method, params }) {
  if (method === 'roots/list') return { method };
  const kept = structuredClone(params);
  delete kept._meta; // a progress token of the legacy leg, if any
  delete kept.elicitationId; // has no place in the modern era
  if (method === 'elicitation/create') kept.mode ??= 'form';
  return { method, params: kept };
}

/** What a modern client must see of the log messages a legacy client got: none unless it asked for a level. */
export const logsFrom = (logs, level) =>
  level ? logs.filter(([severity]) => LEVELS.indexOf(severity) >= LEVELS.indexOf(level)) : [];

/** The same value with the key that is different for each call replaced by a fixed word. */
export const withoutKey = (value, key) => JSON.parse(JSON.stringify(value).replaceAll(key, 'KEY'));
