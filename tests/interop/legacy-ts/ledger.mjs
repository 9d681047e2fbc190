// What the fixture server counts, so that a test can prove things from the server's side: how often each tool was
// started, which named events happened, which sessions live and which of them have an open GET stream.
// `until` lets a test wait for one of these instead of sleeping.

const WAIT_MS_MAX = 15_000; // Longer than any machine step of the tests, shorter than their own deadline for a job.

export class Ledger {
  starts = {};
  events = {};
  sessions = new Map(); // session id -> transport
  listening = new Map(); // session id -> number of open GET streams
  #waiters = new Set();

  started(tool) {
    this.starts[tool] = (this.starts[tool] ?? 0) + 1;
    this.changed();
  }

  /** How often it had happened before. */
  happened(event) {
    const before = this.events[event] ?? 0;
    this.events[event] = before + 1;
    this.changed();
    return before;
  }

  listen(sessionId, change) {
    this.listening.set(sessionId, (this.listening.get(sessionId) ?? 0) + change);
    this.changed();
  }

  changed() {
    for (const check of this.#waiters) check();
  }

  stats() {
    const listening = [...this.listening.values()].reduce((sum, n) => sum + n, 0);
    return { sessions: this.sessions.size, listening, starts: this.starts, events: this.events };
  }

  /** Resolves to true once the condition holds, to false after WAIT_MS_MAX. */
  until(condition) {
    if (condition()) return Promise.resolve(true);
    return new Promise(resolve => {
      const finish = held => {
        clearTimeout(timer);
        this.#waiters.delete(check);
        resolve(held);
      };
      const check = () => condition() && finish(true);
      const timer = setTimeout(() => finish(false), WAIT_MS_MAX);
      this.#waiters.add(check);
    });
  }

  /** The condition a `/wait` request names: `sessions=N`, `listening=SESSION` or `event=NAME`. */
  condition(query) {
    if (query.has('sessions')) return () => this.sessions.size === Number(query.get('sessions'));
    if (query.has('listening')) return () => (this.listening.get(query.get('listening')) ?? 0) > 0;
    return () => (this.events[query.get('event')] ?? 0) > 0;
  }
}
