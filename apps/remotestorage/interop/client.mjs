// remotestorage.js in Node against a store: client.mjs URL NAME TOKEN
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(process.env.NODE_PATH + '/package.json');
const loaded = require('remotestoragejs');
const RemoteStorage = loaded.RemoteStorage ?? loaded.default ?? loaded;
const [url, name, token] = process.argv.slice(2);

const errors = [];
async function connect(cache) {
  const rs = new RemoteStorage({ cache, logging: false });
  rs.on('error', e => errors.push(String(e?.message ?? e)));
  rs.access.claim('api-test', 'rw');
  await new Promise(done => { rs.on('ready', done); setTimeout(done, 1000); });
  rs.remote.configure({
    userAddress: `${name}@localhost`, href: `${url}/rs/store/${name}`, token,
    storageApi: 'draft-dejong-remotestorage-26', properties: {},
  });
  return rs;
}

const rs = await connect(false);
const files = rs.scope('/api-test/');
const remote = rs.remote;
let steps = 0;
async function step(what, run) {
  try {
    await run();
    steps++;
  } catch (e) {
    console.error(`${what}: ${e.stack ?? e}`);
    process.exit(1);
  }
}
const status = async (want, answer) => {
  const got = await answer;
  assert.equal(got.statusCode, want);
  return got;
};
const odd = "Capture d'écran & ü%41 +#?.txt";

await step('a file and its folders', async () => {
  await files.storeFile('text/plain', 'a/b/hello.txt', 'hi there');
  assert.ok('a/' in await files.getListing('', false));
  assert.ok('b/' in await files.getListing('a/', false));
  const f = await files.getFile('a/b/hello.txt', false);
  assert.equal(f.data, 'hi there');
  assert.equal(f.contentType, 'text/plain');
});
let version;
await step('If-None-Match: * on what exists', async () => {
  version = (await status(200, remote.get('/api-test/a/b/hello.txt'))).revision;
  const got = await status(412, remote.put('/api-test/a/b/hello.txt', 'x', 'text/plain', { ifNoneMatch: '*' }));
  assert.equal(got.revision, version, 'the version comes with the refusal');
});
await step('not modified', () => status(304, remote.get('/api-test/a/b/hello.txt', { ifNoneMatch: version })));
await step('If-Match', async () => {
  const got = await status(200, remote.put('/api-test/a/b/hello.txt', 'hello2', 'text/plain; charset=utf-8', { ifMatch: version }));
  assert.notEqual(got.revision, version);
  const stale = await status(412, remote.put('/api-test/a/b/hello.txt', 'hello3', 'text/plain', { ifMatch: version }));
  assert.equal(stale.revision, got.revision);
  version = got.revision;
});
await step('a folder as the client reads it', async () => {
  const { body } = await status(200, remote.get('/api-test/a/b/'));
  const item = body['hello.txt'];
  assert.equal(item.ETag, version);
  assert.equal(item['Content-Type'], 'text/plain; charset=utf-8');
  assert.equal(item['Content-Length'], 6);
  assert.ok(!Number.isNaN(Date.parse(item['Last-Modified'])));
});
// What is stored, whatever the client makes of bytes where there are no Blobs.
async function stored(path) {
  const r = await fetch(`${url}/rs/store/${name}/api-test/${path}`, { headers: { Authorization: `Bearer ${token}` } });
  return Buffer.from(await r.arrayBuffer());
}
await step('bytes', async () => {
  await files.storeFile('application/octet-stream', 'bin', new Uint8Array([0, 1, 2, 255]).buffer);
  assert.deepEqual([...await stored('bin')], [0, 1, 2, 255]);
});
await step('a large file', async () => {
  const large = new Uint8Array(3 << 20).map((_, i) => i * 7);
  await files.storeFile('application/octet-stream', 'large', large.buffer);
  assert.equal(Buffer.compare(await stored('large'), large), 0);
});
await step('an odd name', async () => {
  await files.storeFile('text/plain', odd, 'x');
  assert.ok(odd in await files.getListing('', false));
  assert.equal((await files.getFile(odd, false)).data, 'x');
});
await step('a document over a folder', () => status(409, remote.put('/api-test/a/b', 'x', 'text/plain')));
await step('a folder over a document', () => status(409, remote.put('/api-test/bin/x', 'x', 'text/plain')));
await step('another module', () => status(403, remote.put('/other/x', 'x', 'text/plain')));
await step('the document of the module\'s name', () => status(403, remote.put('/api-test', 'x', 'text/plain')));

// until syncs a client until something is so. What it has just seen it does not
// look at again for its sync interval.
async function until(client, what, ok) {
  for (const end = Date.now() + 60_000; Date.now() < end;) {
    await client.sync.sync();
    if (await ok()) return;
    await new Promise(done => setTimeout(done, 100));
  }
  assert.fail(what);
}
await step('two clients that sync', async () => {
  const [one, two] = [await connect(true), await connect(true)];
  for (const c of [one, two]) {
    c.setSyncInterval(2000); // the least
    c.caching.enable('/api-test/');
  }
  const [a, b] = [one.scope('/api-test/'), two.scope('/api-test/')];
  const data = async (c, path) => (await c.getFile(path, false))?.data;
  await a.storeFile('text/plain', 'shared/x', 'from one');
  await until(one, 'it is pushed', async () => String(await stored('shared/x')) === 'from one');
  await until(two, 'it is fetched', async () => await data(b, 'shared/x') === 'from one');
  // Both change it: the first to come wins.
  await a.storeFile('text/plain', 'shared/x', 'one again');
  await until(one, 'it is pushed', async () => String(await stored('shared/x')) === 'one again');
  await b.storeFile('text/plain', 'shared/x', 'two meanwhile');
  await until(two, 'the other sees it', async () => await data(b, 'shared/x') === 'one again');
  assert.equal(String(await stored('shared/x')), 'one again');
  one.disconnect();
  two.disconnect();
});

await step('delete', async () => {
  assert.equal((await status(200, remote.delete('/api-test/a/b/hello.txt'))).revision, version);
  await status(404, remote.delete('/api-test/a/b/hello.txt'));
  assert.deepEqual((await status(200, remote.get('/api-test/a/'))).body, {});
  for (const path of ['bin', 'large', odd, 'shared/x']) await files.remove(path);
  assert.deepEqual((await status(200, remote.get('/api-test/'))).body, {});
});

assert.deepEqual(errors.filter(e => !/Unauthorized|conflict/i.test(e)), []);
console.log(`${steps} steps: ok`);
process.exit(0);
