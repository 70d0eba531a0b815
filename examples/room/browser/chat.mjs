// Two people in Chromium chat, upload and search while each replica of the fleet is
// replaced: chat.mjs FLEET ROUND DIRECTORY, where FLEET is what `room dev` wrote.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';

const require = createRequire(process.env.NODE_PATH + '/package.json');
const { chromium } = require('playwright-core');
const [file, round, directory] = process.argv.slice(2);
const fleet = JSON.parse(fs.readFileSync(file, 'utf8'));
const room = `${fleet.url}/room/browser%20room/`;
const patience = { timeout: 60_000 };
const pause = ms => new Promise(done => setTimeout(done, ms));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });

// A person is a page. What is done is done by the keyboard.
class Person {
  said = [];
  sockets = 0;
  problems = [];

  constructor(name) { this.name = name; }

  async come(options) {
    this.context = await browser.newContext(options);
    this.page = await this.context.newPage();
    this.page.on('pageerror', e => this.problems.push(String(e)));
    this.page.on('websocket', () => this.sockets++);
    // That a connection was refused or cut while a replica stops is no problem.
    this.page.on('console', m => {
      if (m.type() === 'error' && !/WebSocket connection|Failed to load resource/.test(m.text())) this.problems.push(m.text());
    });
    await this.page.goto(room);
    await this.shot('name');
    await this.page.keyboard.type(this.name);
    await this.page.keyboard.press('Enter');
    await this.sees('#state', 'connected');
  }

  shot(what) { return this.page.screenshot({ path: `${directory}/${this.name}-${what}.png` }); }

  sees(selector, text) {
    return this.page.waitForFunction(([s, t]) => document.querySelector(s).textContent === t, [selector, text], patience);
  }

  // say types into the field that has the focus.
  async say(text) {
    this.said.push(text);
    await this.page.keyboard.insertText(text);
    await this.page.keyboard.press('Enter');
  }

  log() { return this.page.$$eval('#log li', list => list.map(li => li.textContent.replace(/^[^A-Za-z]*(?:[AP]M )?/, ''))); }
}

// talk has everybody say something again and again, until done is.
async function talk(people, what, done) {
  let over = false;
  const end = done().finally(() => { over = true; });
  await Promise.all(people.map(async p => {
    for (let i = 0; !over || i < 5; i++) {
      await p.say(`${what} ${i} of ${p.name} in run${round}`);
      await pause(50);
    }
  }));
  await end;
}

// replace ends a replica's process in order; the fleet starts another one.
async function replace(replica) {
  process.kill(replica.pid, 'SIGTERM');
  for (const end = Date.now() + patience.timeout; ; await pause(100)) {
    try { process.kill(replica.pid, 0); } catch { break; }
    assert.ok(Date.now() < end, `${replica.name} does not end`);
  }
  const env = { ...process.env };
  for (const line of fs.readFileSync(fleet.environment, 'utf8').split('\n')) {
    const at = line.indexOf('=');
    if (at > 0) env[line.slice(0, at)] = line.slice(at + 1).replace(/^(['"])(.*)\1$/, '$2');
  }
  await promisify(execFile)(process.env.ROOM, ['fleet', 'wait', '--ready', String(fleet.replicas.length), '--for', '60s'], { env });
}

async function chat() {
  const ada = new Person('ada'), bob = new Person('bob');
  const people = [ada, bob];
  await ada.come({ viewport: { width: 1000, height: 700 } });
  await bob.come({ viewport: { width: 360, height: 640 }, colorScheme: 'dark' });
  for (const p of people) await p.sees('#members', 'ada, bob');
  const before = (await ada.log()).length;
  await talk(people, 'hello', async () => {});

  // A file, which is sent while a replica is replaced.
  const words = 'words of a file, ' + round;
  await ada.page.locator('#say input[type=file]').setInputFiles({ name: 'a file & more.txt', mimeType: 'text/plain', buffer: Buffer.from(words) });
  await ada.page.locator('#say input[name=text]').focus();
  await talk(people, 'first replica', () => replace(fleet.replicas[0]));
  const link = bob.page.locator('#log li', { hasText: 'a file & more.txt' }).last().locator('a');
  await link.waitFor(patience);
  assert.equal(await link.textContent(), 'a file & more.txt');
  assert.equal(await link.evaluate(a => fetch(a.href).then(r => r.text())), words);

  // A search, while messages go on arriving.
  await bob.page.locator('#search input').focus();
  await bob.page.keyboard.type(`hello "bob" run${round}`);
  await bob.page.keyboard.press('Enter');
  await bob.page.waitForFunction(n => document.querySelectorAll('#found li').length === n, 5, patience);
  assert.ok(await bob.page.locator('#log').isHidden());
  await bob.shot('found');
  await ada.say('while bob looks at what he has found');
  await bob.page.keyboard.press('Escape');
  assert.ok(await bob.page.locator('#found').isHidden());

  await talk(people, 'second replica', () => replace(fleet.replicas[1]));

  // Everybody has every message once, in one order, which is that of each speaker.
  const total = before + ada.said.length + bob.said.length;
  for (const p of people) {
    await p.page.waitForFunction(n => document.querySelectorAll('#log li').length >= n, total, patience);
    await p.sees('#state', 'connected');
    await p.sees('#members', 'ada, bob');
  }
  const logs = [await ada.log(), await bob.log()];
  assert.equal(logs[0].length, total);
  assert.deepEqual(logs[0], logs[1]);
  for (const p of people) {
    const own = logs[0].slice(before).filter(t => t.startsWith(p.name + ': ')).map(t => t.slice(p.name.length + 2));
    const plain = t => t.replace(' a file & more.txt', '');
    const withFile = own.findIndex(t => t !== plain(t)); // it went when its file had gone
    if (withFile >= 0) {
      p.said.splice(p.said.indexOf(plain(own[withFile])), 1);
      own.splice(withFile, 1);
    }
    assert.equal(withFile >= 0, p === ada);
    assert.deepEqual(own, p.said);
    assert.ok(p.sockets > 1, `${p.name} had no new socket`);
    await p.shot('chat');
  }

  // Who goes away is let go when his time is over; who stays is there.
  await bob.context.close();
  await ada.sees('#members', 'ada');
  await pause(1000);
  await ada.sees('#members', 'ada');
  for (const p of people) assert.deepEqual(p.problems, []);
  console.log(`${total - before} messages, ${people.map(p => `${p.name} had ${p.sockets} sockets`).join(', ')}: ok`);
}

try {
  await chat();
} catch (e) {
  console.error(e);
  process.exitCode = 1;
} finally {
  await browser.close();
}
