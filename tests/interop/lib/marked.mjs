// Processes that carry a mark in their environment: those that a client or holdfast has started for us, which we have no
// other way of knowing. Where there is no /proc, none are found.
import { readdirSync, readFileSync } from 'node:fs';

export const MARK = 'HOLDFAST_INTEROP';

const read = (pid, what) => {
  try {
    return readFileSync(`/proc/${pid}/${what}`, 'latin1');
  } catch {
    return ''; // gone in the meantime, or not ours to read
  }
};

/** The ids of the living processes whose mark begins with `mark`; one that has ended and was not awaited is none. */
export function marked(mark) {
  let names = [];
  try {
    names = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  } catch {
    // no /proc here
  }
  const carries = pid => read(pid, 'environ').split('\0').some(entry => entry.startsWith(`${MARK}=${mark}`));
  return names.filter(carries).map(Number);
}
