// Loaded with `node --import` before a real server that is not asked where to listen: whatever it says, it listens on a free
// port of 127.0.0.1, and standard error tells which.
import net from 'node:net';

const { listen } = net.Server.prototype;
net.Server.prototype.listen = function listenOnLoopback(_port, ...rest) {
  const ready = rest.findLast(argument => typeof argument === 'function');
  this.once('listening', () => console.error(`listening on ${this.address().port}`));
  return listen.call(this, 0, '127.0.0.1', ready);
};
