// The script of the console: live updates, relative times and keys. Every page works without it.

const body = document.body;
const base = body.dataset.base;
const live = document.getElementById("live");

// --- Times. The server's clock counts: the difference to this machine's is measured by each page and each update. ---

let ahead = Number(body.dataset.now) / 1000 - Date.now();

function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60) ? `${Math.floor((s % 3600) / 60)}m` : ""}`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600) ? `${Math.floor((s % 86400) / 3600)}h` : ""}`;
}

// What happened is never in the future: then two clocks differ.
function since(past) {
  if (past <= -1000) return `clock ${span(-past)} ahead`;
  return past < 1000 ? "just now" : `${span(past)} ago`;
}

function relative(left) {
  if (left > 0) return `in ${span(Math.max(left, 1000))}`;
  return since(-left);
}

function tick() {
  const now = Date.now() + ahead;
  for (const time of document.querySelectorAll("time[data-at]")) {
    const text = relative(Number(time.dataset.at) / 1000 - now);
    if (time.textContent !== text) time.textContent = text;
  }
  for (const time of document.querySelectorAll("time[data-past]")) {
    const text = since(now - Number(time.dataset.past) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 1000);

// --- Live updates: the server sends the sections that changed. ---

let stream = null;
let pause = 1000;

// What came for a section while somebody typed in it or pressed a button of it, by id.
const missed = new Map();
let pressed = null;

function isBusy(section) {
  const active = document.activeElement;
  return section.contains(pressed) || (section.contains(active) && isTyped(active));
}

// A text that somebody types, or a choice. A check box is neither: it keeps its state.
function isTyped(field) {
  return /^(INPUT|TEXTAREA|SELECT)$/.test(field.tagName) && field.type !== "checkbox";
}

function patch(event) {
  const { now, sections } = JSON.parse(event.data);
  ahead = now / 1000 - Date.now();
  for (const { id, html } of sections) missed.set(id, html);
  apply();
}

function apply() {
  for (const [id, html] of missed) {
    const section = document.getElementById(id);
    if (section && isBusy(section)) continue;
    missed.delete(id);
    if (section) replace(section, html);
  }
  tick();
}

function fields(section) {
  return [...section.querySelectorAll("input:not([type=hidden]), select, textarea")];
}

function isChanged(field) {
  return field.tagName === "SELECT" ? [...field.options].some((option) => option.selected !== option.defaultSelected && option.index > 0) : field.value !== field.defaultValue;
}

// The parts of a section that can have the focus. Those that scroll can, too.
function focusable(section) {
  return [...section.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, .wide, pre")];
}

// What stays of a part when its section is replaced.
function identity(part) {
  const own = { BUTTON: part.textContent, INPUT: part.type === "checkbox" ? part.value : "", DIV: part.className }[part.tagName];
  return [part.tagName, part.getAttribute("href"), part.name, own].join("\n");
}

// Finds the part that has the focus, and returns a function that gives it back to its successor.
function keepFocus(section) {
  const active = document.activeElement;
  if (!section.contains(active)) return () => {};
  const alike = () => focusable(section).filter((part) => identity(part) === kept);
  const kept = identity(active);
  const place = alike().indexOf(active);
  return () => {
    const left = alike();
    left[Math.min(place, left.length - 1)]?.focus({ preventScroll: true });
  };
}

function replace(section, html) {
  const scrolled = [...section.querySelectorAll(".wide, pre")].map((part) => [part.scrollLeft, part.scrollTop]);
  const open = [...section.querySelectorAll("details")].map((details) => details.open);
  const typed = new Map(fields(section).filter(isChanged).map((field) => [field.name, field.value]));
  const checked = new Set([...section.querySelectorAll("input:checked")].map((box) => box.value));
  const restoreFocus = keepFocus(section);
  section.innerHTML = html;
  section.querySelectorAll(".wide, pre").forEach((part, place) => { if (scrolled[place]) [part.scrollLeft, part.scrollTop] = scrolled[place]; });
  section.querySelectorAll("details").forEach((details, place) => { details.open = open[place] ?? false; });
  for (const field of fields(section)) {
    const value = typed.get(field.name);
    // An event that does not fit any more is not chosen again.
    if (value !== undefined && (field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value && !option.disabled))) field.value = value;
  }
  for (const one of section.querySelectorAll("input[type=checkbox]")) one.checked = checked.has(one.value);
  restoreFocus();
}

// The pause lets a click reach the button that was pressed, before its section is replaced.
addEventListener("focusout", () => setTimeout(apply, 50));
addEventListener("pointerdown", (event) => { pressed = event.target; });
for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => setTimeout(() => { pressed = null; apply(); }, 50));

// A diagram that is wider than its frame begins where the instance is.
for (const frame of document.querySelectorAll(".diagram")) {
  const state = frame.querySelector(".here, .target, .has-errors");
  if (!state) continue;
  const [inner, outer] = [state.getBoundingClientRect(), frame.getBoundingClientRect()];
  frame.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
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

// --- The sliders of the simulator. Each writes the text of its field, and the outcome follows. ---

let simulation = 0;

async function simulate(form) {
  const mine = ++simulation;
  const url = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
  const answer = await fetch(url).catch(() => null);
  const html = await answer?.text().catch(() => "");
  const outcome = answer?.ok && new DOMParser().parseFromString(html, "text/html").getElementById("attempts");
  // A newer setting counts.
  if (!outcome || mine !== simulation) return;
  document.getElementById("attempts").replaceWith(outcome);
  history.replaceState(null, "", url);
}

for (const field of document.querySelectorAll(".sliders [data-steps]")) {
  const steps = field.dataset.steps.split(" ");
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, ariaLabel: `slider: ${field.parentElement.textContent.trim()}` });
  const follow = () => { if (steps.includes(field.value.trim())) slider.value = steps.indexOf(field.value.trim()); };
  follow();
  slider.addEventListener("input", () => { field.value = steps[slider.value]; simulate(field.form); });
  field.addEventListener("input", () => { follow(); simulate(field.form); });
  field.after(slider);
}

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
  if (event.ctrlKey || event.metaKey || event.altKey || isTyped(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = pending + event.key;
  pending = event.key === "g" ? "g" : "";
  if (key === "j" || key === "k") return move(key === "j" ? 1 : -1);
  if (key === "x") return document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
  if (key === "?") return document.getElementById("keys").showModal();
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!target || target.disabled) return;
  event.preventDefault();
  if (/^(INPUT|SELECT)$/.test(target.tagName)) target.focus();
  else if (key === "r") target.closest("form").querySelector("input[name=reason]").focus();
  else target.click();
});
