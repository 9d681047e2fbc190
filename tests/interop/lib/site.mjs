// A small web site on loopback, for a server that fetches pages.
import http from 'node:http';

const PAGES = {
  '/page': ['text/html; charset=utf-8', '<html><head><title>A page</title></head><body><h1>Heading é</h1>'
    + '<p>Some words, <a href="/other">a link</a>, and 漢.</p></body></html>'],
  '/private/page': ['text/html', '<html><body><p>private</p></body></html>'],
  '/robots.txt': ['text/plain', 'User-agent: *\nDisallow: /private/\n']
};

export async function startSite() {
  const server = http.createServer((req, res) => {
    const page = PAGES[req.url];
    if (page) res.writeHead(200, { 'content-type': page[0] }).end(page[1]);
    else res.writeHead(404).end();
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: () => {
      server.closeAllConnections();
      return new Promise(resolve => server.close(resolve));
    }
  };
}
