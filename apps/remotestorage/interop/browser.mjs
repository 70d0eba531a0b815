// remotestorage.js in Chromium, from the address to the first sync, and the pages
// without JavaScript: browser.mjs URL NAME PASSWORD TOKEN DIRECTORY
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(process.env.NODE_PATH + '/package.json');
const { chromium } = require('playwright-core');
const [url, name, password, token, directory] = process.argv.slice(2);
const library = fs.readFileSync(process.env.NODE_PATH + '/remotestoragejs/release/remotestorage.js');
const address = `${name}@${new URL(url).host}`;

// The application: a page at an origin of its own.
const page1 = `<!DOCTYPE html><title>app</title><script src="/rs.js"></script><script>
  window.events = [];
  const rs = window.rs = new (RemoteStorage.default ?? RemoteStorage)({ cache: true, logging: false });
  rs.access.claim('api-test', 'rw');
  rs.caching.enable('/api-test/');
  for (const e of ['ready', 'not-connected', 'connected', 'disconnected', 'error', 'sync-done'])
    rs.on(e, x => events.push(x?.message ? e + ': ' + x.message : e));
</script>`;
const app = http.createServer((q, r) => {
  const js = q.url.startsWith('/rs.js');
  r.writeHead(200, { 'content-type': js ? 'text/javascript' : 'text/html' });
  r.end(js ? library : page1);
});
await new Promise(done => app.listen(0, '127.0.0.1', done));
const origin = `http://localhost:${app.address().port}`;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const shot = (page, what) => page.screenshot({ path: `${directory}/${what}.png`, fullPage: true });
const patience = { timeout: 60_000 };

async function wholeFlow() {
  const context = await browser.newContext();
  const page = await context.newPage();
  const answers = [], problems = [];
  page.on('response', r => { if (r.url().startsWith(url)) answers.push(`${r.request().method()} ${r.status()}`); });
  page.on('console', m => { if (m.type() === 'error' && !/favicon/.test(m.location().url)) problems.push(m.text()); });
  page.on('pageerror', e => problems.push(String(e)));
  await page.goto(origin + '/');
  await page.waitForFunction(() => events.includes('ready') || events.includes('not-connected'), null, patience);
  await page.evaluate(a => { rs.connect(a); }, address);
  await page.waitForURL(/\/oauth\//, patience);
  assert.equal(await page.textContent('.who'), origin);
  await shot(page, 'dialog');
  // By the keyboard alone: the password's field has the focus.
  assert.equal(await page.evaluate(() => document.activeElement.name), 'password');
  await page.keyboard.type(password);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.name), 'allow');
  await page.keyboard.press('Enter');
  await page.waitForURL(u => u.origin === origin, patience);
  await page.waitForFunction(() => events.includes('sync-done'), null, patience);
  const got = await page.evaluate(async () => {
    const c = rs.scope('/api-test/');
    await c.storeFile('text/plain', 'x/y & z.txt', 'hello');
    await rs.sync.sync();
    return [rs.remote.connected, await c.getListing('x/', false), (await c.getFile('x/y & z.txt', false)).data];
  });
  assert.deepEqual(got, [true, { 'y & z.txt': true }, 'hello']);
  const stored = await fetch(`${url}/rs/store/${name}/api-test/x/y%20%26%20z.txt`, { headers: { Authorization: `Bearer ${token}` } });
  assert.equal(await stored.text(), 'hello');
  const events = await page.evaluate(() => events);
  assert.deepEqual(events.filter(e => e.startsWith('error')), []);
  assert.deepEqual(problems, []);
  assert.ok(answers.includes('PUT 201') || answers.includes('PUT 200'), answers.join());

  // The owner's page, and an end of the access.
  await page.goto(url + '/rs/');
  assert.match(await page.textContent('main'), new RegExp(origin));
  await shot(page, 'account');
  const before = await page.locator('ul.list > li', { hasText: origin }).count();
  await page.locator('ul.list > li', { hasText: origin }).first().locator('button').press('Enter');
  await page.waitForFunction(n => document.querySelectorAll('ul.list > li').length < n + 100 && document.readyState === 'complete', before, patience);
  await page.goto(url + '/rs/');
  assert.equal(await page.locator('ul.list > li', { hasText: origin }).count(), before - 1);
  await context.close();
}

async function withoutScripts() {
  const context = await browser.newContext({ javaScriptEnabled: false, colorScheme: 'dark', viewport: { width: 360, height: 640 } });
  const page = await context.newPage();
  const q = new URLSearchParams({ redirect_uri: origin + '/back', scope: 'api-test:r *:rw', response_type: 'token', state: 'a b', client_id: 'https://google.com' });
  await page.goto(`${url}/rs/oauth/${name}?${q}`);
  await shot(page, 'dialog-narrow-dark');
  assert.ok(!(await page.textContent('main')).includes('google.com'));
  await page.keyboard.type('wrong password');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=alert]', patience);
  await page.keyboard.type(password);
  await page.keyboard.press('Enter'); // the first button is the one that allows
  await page.waitForURL(u => u.origin === origin, patience);
  const back = new URLSearchParams(new URL(page.url()).hash.slice(1));
  assert.equal(back.get('token_type'), 'bearer');
  assert.equal(back.get('state'), 'a b');
  assert.ok(back.get('access_token').length >= 26);
  await context.close();
}

// A page in the store is of no origin: it reads nothing of the dialog's, runs no
// script and cannot frame it.
async function hostilePage() {
  const html = `<title>quiet</title><script>document.title = 'ran ' + document.cookie</script><img src=x onerror="document.title='ran'"><iframe src="${url}/rs/"></iframe>`;
  const put = await fetch(`${url}/rs/store/${name}/public/api-test/evil.html`, { method: 'PUT', body: html, headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'text/html' } });
  assert.ok(put.ok, String(put.status));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url + '/rs/');
  assert.ok((await context.cookies()).length > 0);
  await page.goto(`${url}/rs/store/${name}/public/api-test/evil.html`);
  await page.waitForTimeout(500);
  assert.equal(await page.title(), 'quiet');
  assert.equal(await page.evaluate(() => self.origin), 'null');
  assert.equal(await page.evaluate(() => { try { return document.cookie; } catch (e) { return e.name; } }), 'SecurityError');
  assert.ok(!page.frames().slice(1).some(f => f.url().startsWith(url + '/rs/')), 'the dialog in a frame');
  const sent = await page.evaluate(u => fetch(u).then(r => r.status, e => e.name), url + '/rs/');
  assert.equal(sent, 'TypeError');
  await context.close();
}

try {
  await wholeFlow();
  await withoutScripts();
  await hostilePage();
  console.log('whole flow, without scripts, hostile page: ok');
} catch (e) {
  console.error(e);
  process.exitCode = 1;
} finally {
  await browser.close();
  app.close();
}
