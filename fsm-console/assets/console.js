// The script of the console: live updates, relative times and keys. Every page works without it.

const body = document.body;
const base = body.dataset.base;
const live = document.getElementById("live");

// --- Times. The server's clock counts: the difference to this machine's is measured by each page and each update. ---

let ahead = Number(body.dataset.now) / 1000 - Date.now();

function span(ms) {
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return `${Math.floor(ms)}ms`;
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60) ? `${Math.floor((s % 3600) / 60)}m` : ""}`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600) ? `${Math.floor((s % 86400) / 3600)}h` : ""}`;
}

function tick() {
  const now = Date.now() + ahead;
  for (const time of document.querySelectorAll("time[data-at]")) {
    const left = Number(time.dataset.at) / 1000 - now;
    const text = left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 1000);

// --- Live updates: the server sends the sections that changed. ---

let stream = null;
let pause = 1000;

function isBusy(section) {
  const active = document.activeElement;
  return section.contains(active) && /^(INPUT|TEXTAREA|SELECT)$/.test(active.tagName);
}

function patch(event) {
  const { now, sections } = JSON.parse(event.data);
  ahead = now / 1000 - Date.now();
  for (const { id, html } of sections) {
    const section = document.getElementById(id);
    // What somebody is typing is not taken away.
    if (!section || isBusy(section)) continue;
    const scrolled = [...section.querySelectorAll(".wide, pre")].map((part) => [part.scrollLeft, part.scrollTop]);
    const open = [...section.querySelectorAll("details")].map((details) => details.open);
    const row = section.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    section.innerHTML = html;
    section.querySelectorAll(".wide, pre").forEach((part, place) => { if (scrolled[place]) [part.scrollLeft, part.scrollTop] = scrolled[place]; });
    section.querySelectorAll("details").forEach((details, place) => { details.open = open[place] ?? false; });
    if (row) section.querySelector(`a[href="${CSS.escape(row)}"]`)?.focus();
  }
  tick();
}

function connect() {
  if (stream || document.hidden || !body.dataset.live.match(/^$|^\/(?!simulator)/) || !document.querySelector("main > section:not(#said, #plan)")) return;
  stream = new EventSource(`${base}/live?page=${encodeURIComponent(body.dataset.live)}`);
  stream.onopen = () => { live.textContent = "● live"; pause = 1000; };
  stream.addEventListener("patch", patch);
  stream.onerror = () => {
    disconnect("reconnecting…");
    setTimeout(connect, pause);
    pause = Math.min(pause * 2, 15000);
  };
}

function disconnect(text) {
  stream?.close();
  stream = null;
  live.textContent = text;
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect("paused") : connect()));
addEventListener("pagehide", () => disconnect(""));
addEventListener("pageshow", connect);
connect();

// --- Keys ---

let pending = "";

function rows() {
  return [...document.querySelectorAll("a[data-row]")];
}

function move(step) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = pending + event.key;
  pending = event.key === "g" ? "g" : "";
  if (key === "j" || key === "k") return move(key === "j" ? 1 : -1);
  if (key === "?") return document.getElementById("keys").showModal();
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!target || target.disabled) return;
  event.preventDefault();
  if (target.tagName === "INPUT") target.focus();
  else if (key === "r") target.closest("form").querySelector("input[name=reason]").focus();
  else target.click();
});
