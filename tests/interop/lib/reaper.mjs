// Ends the runner's children if the runner itself is killed: it holds the other end of a pipe, and when that closes,
// whatever is still registered is killed, and what those have started for the runner, by the mark that it carries.
// Lines on standard input: `+PID`, `-PID` and `=MARK`.
import readline from 'node:readline';
import { marked } from './marked.mjs';

const pids = new Set();
const marks = new Set();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {}); // the pipe decides, not the terminal
for await (const line of readline.createInterface({ input: process.stdin })) {
  const said = line.slice(1);
  if (line[0] === '+') pids.add(Number(said));
  else if (line[0] === '-') pids.delete(Number(said));
  else marks.add(said);
}
const kill = pid => {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself in the meantime.
  }
};
pids.forEach(kill);
for (const mark of marks) marked(mark).forEach(kill);
