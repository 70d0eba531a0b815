"use strict";
const $ = (id) => document.getElementById(id);
const room = decodeURIComponent(location.pathname.split("/").at(-2));
const name = new URLSearchParams(location.search).get("name");
let heard = 0; // the number of the last message that is shown
let socket = null;
let uploads = 0;
const unsaid = new Map(); // by operation id, in their order, until they are heard

function connect() {
  const url = new URL("socket", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.search = new URLSearchParams({ name, after: heard });
  socket = new WebSocket(url);
  socket.onopen = () => {
    for (const m of unsaid.values()) socket.send(JSON.stringify(m)); // perhaps stored before: the op tells
    status();
  };
  socket.onmessage = (e) => hear(JSON.parse(e.data));
  socket.onclose = () => {
    status();
    setTimeout(connect, 200 + Math.random() * 800); // not all at once
  };
}

function status() {
  const on = socket.readyState === WebSocket.OPEN;
  const waiting = unsaid.size + uploads;
  $("state").textContent = (on ? "connected" : "connecting") + (waiting ? ", " + waiting + " to send" : "");
  $("state").className = on ? "" : "off";
}

function hear(frame) {
  if (frame.members) $("members").textContent = frame.members.join(", ");
  for (const m of frame.messages || []) {
    unsaid.delete(m.op);
    if (m.seq <= heard) continue;
    heard = m.seq;
    const log = $("log");
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 8; // else somebody reads what was before
    log.firstElementChild.append(line(m));
    if (atEnd || m.name === name) log.scrollTop = log.scrollHeight;
  }
  status();
}

function line(m) {
  const li = document.createElement("li");
  const when = document.createElement("small");
  when.textContent = new Date(m.at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) + " ";
  const who = document.createElement("b");
  who.textContent = m.name + ": ";
  li.append(when, who, m.text);
  if (m.file) {
    const a = document.createElement("a");
    a.href = m.file;
    a.textContent = decodeURIComponent(m.file.split("/").at(-1));
    li.append(m.text && " ", a);
  }
  return li;
}

// again asks until there is an answer that does not say "not now". What it asks
// for is harmless to repeat.
async function again(path, options) {
  for (;;) {
    try {
      const r = await fetch(path, options);
      if (r.ok) return r;
      if (![502, 503, 504].includes(r.status)) throw new Error((await r.text()).trim() || r.statusText);
    } catch (e) {
      if (!(e instanceof TypeError)) throw e; // else the connection broke
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

$("say").onsubmit = async (e) => {
  e.preventDefault();
  const { text, file } = e.target.elements;
  const m = { op: crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) + Date.now(), text: text.value, file: "" };
  const attached = file.files[0];
  if (!m.text && !attached) return;
  e.target.reset();
  text.focus();
  $("trouble").textContent = "";
  if (attached) {
    m.file = "files/" + m.op + "/" + encodeURIComponent(attached.name);
    uploads++;
    status();
    try {
      await again(m.file, { method: "PUT", body: attached });
    } catch (err) {
      $("trouble").textContent = attached.name + " was not sent: " + err.message;
      text.value ||= m.text;
      return;
    } finally {
      uploads--;
      status();
    }
  }
  unsaid.set(m.op, m);
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(m));
  status();
};

// What is found is shown in place of the messages, which go on arriving.
function find(list) {
  $("log").hidden = list !== null;
  $("found").hidden = $("back").hidden = list === null;
  $("found").firstElementChild.replaceChildren(...(list || []).map(line));
  if (list === null) {
    $("search").reset();
    $("log").scrollTop = $("log").scrollHeight;
    $("say").elements.text.focus();
  } else if (list.length === 0) {
    $("found").firstElementChild.textContent = "Nothing was found.";
  }
}

$("search").onsubmit = async (e) => {
  e.preventDefault();
  const q = e.target.elements.q.value.trim();
  if (!q) return find(null);
  $("trouble").textContent = "";
  try {
    const found = await (await again("search?" + new URLSearchParams({ q }))).json();
    find(found.reverse());
  } catch (err) {
    $("trouble").textContent = "Search: " + err.message;
  }
};
$("back").onclick = () => find(null);
document.onkeydown = (e) => { if (e.key === "Escape" && !$("found").hidden) find(null); };

$("title").textContent = document.title = room;
if (name) {
  for (const id of ["about", "search", "log", "say"]) $(id).hidden = false;
  $("say").elements.text.focus();
  setInterval(() => { if (socket.readyState === WebSocket.OPEN) socket.send(""); }, 10000); // still here
  connect();
} else {
  $("who").hidden = false;
  $("who").elements.name.focus();
}
