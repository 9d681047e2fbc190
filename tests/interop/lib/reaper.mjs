// Ends the runner's children if the runner itself is killed: it holds the other end of a pipe, and when that closes,
// whatever is still registered is killed. Lines on standard input: `+PID` and `-PID`.
import readline from 'node:readline';

const pids = new Set();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {}); // the pipe decides, not the terminal
for await (const line of readline.createInterface({ input: process.stdin })) {
  const pid = Number(line.slice(1));
  if (line[0] === '+') pids.add(pid);
  else pids.delete(pid);
}
for (const pid of pids) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself in the meantime.
  }
}
