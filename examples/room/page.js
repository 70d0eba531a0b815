"use strict";
const $ = (id) => document.getElementById(id);
const params = new URLSearchParams(location.search);
const name = params.get("name") || prompt("Your name?") || "guest";
let heard = 0; // the number of the last message that is shown
let socket = null;
const unsaid = new Map(); // by operation id, until they are heard

$("title").textContent = decodeURIComponent(location.pathname.split("/").at(-2));

function connect() {
  const url = new URL("socket", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.search = new URLSearchParams({ name, after: heard });
  socket = new WebSocket(url);
  socket.onopen = () => {
    status("connected", true);
    for (const m of unsaid.values()) socket.send(JSON.stringify(m)); // perhaps stored before: the op tells
  };
  socket.onmessage = (e) => hear(JSON.parse(e.data));
  socket.onclose = (e) => {
    status("away (" + e.code + "), coming again", false);
    setTimeout(connect, 200 + Math.random() * 800); // not all at once
  };
}

function status(text, on) {
  $("state").textContent = text;
  $("state").className = on ? "" : "off";
}

function hear(frame) {
  if (frame.members) $("members").textContent = frame.members.join(", ");
  for (const m of frame.messages || []) {
    unsaid.delete(m.op);
    if (m.seq <= heard) continue;
    heard = m.seq;
    show(m);
  }
}

function show(m) {
  const li = document.createElement("li");
  const when = document.createElement("small");
  when.textContent = new Date(m.at).toLocaleTimeString() + " ";
  const who = document.createElement("b");
  who.textContent = m.name + ": ";
  li.append(when, who, m.text + " ");
  if (m.file) {
    const a = document.createElement("a");
    a.href = m.file;
    a.textContent = decodeURIComponent(m.file.split("/").at(-1));
    li.append(a);
  }
  $("log").append(li);
  $("log").scrollTop = $("log").scrollHeight;
}

async function upload(file, op) {
  const path = "files/" + op + "/" + encodeURIComponent(file.name);
  for (;;) {
    try {
      const r = await fetch(path, { method: "PUT", body: file });
      if (r.ok) return path;
      if (r.status !== 503) throw new Error(await r.text());
    } catch (e) {
      if (!(e instanceof TypeError)) throw e; // else the connection broke: again
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
  try {
    if (attached) m.file = await upload(attached, m.op);
  } catch (err) {
    status("upload: " + err.message, false);
    return;
  }
  unsaid.set(m.op, m);
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(m));
};

$("search").onsubmit = async (e) => {
  e.preventDefault();
  const q = e.target.elements.q.value;
  const r = await fetch(q ? "search?" + new URLSearchParams({ q }) : "messages");
  if (!r.ok) return status("search: " + r.status, false);
  const found = await r.json();
  $("log").replaceChildren();
  for (const m of q ? found.reverse() : found) show(m);
};

setInterval(() => { if (socket.readyState === WebSocket.OPEN) socket.send(""); }, 10000); // still here
connect();
