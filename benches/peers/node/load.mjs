// The load that every peer written for Node carries; the same as `load/src` for those in Rust.

import { parseArgs } from "node:util";
import pg from "pg";

/** How long callers run before they are counted, in ms. */
const WARM_UP = 700;
/** How long what was sent may take to be done, after the last send, in ms. */
const PATIENCE = 10_000;
/** Those peers that take many jobs in one call: how many a call, by how many senders, and how many may be under way. */
const BULK = 500;
const SENDERS = 4;
const UNDER_WAY = 10_000;
/** The pause before each job of an idle system, how many there are, and how long they may take together, in ms. */
const PAUSE = 3;
const JOBS = 320;
const IDLE_FOR = 5_000;
/** The first jobs prepare statements. */
const UNCOUNTED = 5;
/** How many connections each peer may have: each brings one job at a time, and PostgreSQL makes one write to the disk of many commits. */
export const CONNECTIONS = 32;

const TEXT = "0123456789abcdef".repeat(10);
const waiting = new Map();
let startedCount = 0;
let next = 0;

/** What one process measures: `enqueue`, `both` or `idle`, on which database, and for how long. */
export function parse() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { database: { type: "string" }, seconds: { type: "string" }, callers: { type: "string" }, synchronous: { type: "string" } },
  });
  if (!["enqueue", "both", "idle"].includes(positionals[0]) || !values.database) {
    throw new Error("usage: enqueue|both|idle --database URL [--seconds N] [--callers N,N]");
  }
  return {
    figure: positionals[0],
    database: values.database,
    each: 1000 * Number(values.seconds ?? 2),
    callers: (values.callers ?? "256,2000").split(",").map(Number),
    hasWorkers: positionals[0] !== "enqueue",
    isIdle: positionals[0] === "idle",
  };
}

/** The job runs. Each peer's function says it, and does nothing else. */
export function started(number) {
  startedCount += 1;
  const told = waiting.get(number);
  if (told) {
    waiting.delete(number);
    told(performance.now());
  }
}

/** A connection beside the peer's own, to ask what is left. Returns a function that asks for one number. */
export async function asking(database, sql) {
  const client = new pg.Client({ connectionString: database });
  await client.connect();
  return async () => Number((await client.query({ name: "left", text: sql })).rows[0].count);
}

/**
 * Measures. A peer has `settings`, `end` (how the end of a job is seen), `send(job)` and where it can `sendMany(jobs)`, both
 * durable when they resolve, and either `tells` (then `send` resolves to a function that waits for the job's durable end) or
 * `unfinished()`, the number of jobs that are not durably done.
 */
export async function measure(given, peer) {
  note("settings", peer.settings);
  if (given.figure === "enqueue") {
    for (const callers of given.callers) await enqueue(given, peer, callers);
    if (peer.sendMany) await enqueueInBulk(given, peer);
  } else if (given.figure === "both") {
    note("end", peer.end);
    for (const callers of given.callers) await both(given, peer, callers);
    if (peer.sendMany) await bothInBulk(given, peer);
  } else {
    note("end", peer.end);
    await idle(peer);
  }
}

async function enqueue(given, peer, callers) {
  let [done, isOver] = [0, false];
  const sending = times(callers, async () => {
    while (!isOver) {
      await peer.send(job());
      done += 1;
    }
  });
  const rate = await rateOf(given, () => done, sending);
  isOver = true;
  await sending;
  put(`enqueue, ${callers} callers`, rate, "a second");
}

async function enqueueInBulk(given, peer) {
  let [done, isOver] = [0, false];
  const sending = times(SENDERS, async () => {
    while (!isOver) {
      await peer.sendMany(bulk());
      done += BULK;
    }
  });
  const rate = await rateOf(given, () => done, sending);
  isOver = true;
  await sending;
  put("enqueue, in bulk", rate, "a second", `${SENDERS} callers, ${BULK} jobs a call`);
}

async function both(given, peer, callers) {
  let [done, sent, isOver] = [0, 0, false];
  const before = startedCount;
  let tellAll;
  const over = new Promise((resolve) => (tellAll = resolve));
  const sending = times(callers, async () => {
    while (!isOver) {
      const one = job();
      const start = startOf(one.number);
      sent += 1;
      const end = await peer.send(one);
      if (peer.tells) await end();
      else if (!isOver) await Promise.race([start, over]);
      done += 1;
    }
  });
  await during(sending, pause(WARM_UP));
  const [begun, counted, startedThen] = [performance.now(), done, startedCount];
  await during(sending, pause(given.each));
  isOver = true;
  tellAll();
  const stopped = performance.now();
  await sending;
  const what = `both, ${callers} callers`;
  if (!peer.tells) return untilDone(peer, what, sent, before, startedThen, begun);
  const now = performance.now();
  put(what, ((done - counted) / (now - begun)) * 1000, "a second", besides(sent, now - stopped));
}

async function bothInBulk(given, peer) {
  let [sent, isOver] = [0, false];
  const before = startedCount;
  const sending = times(SENDERS, async () => {
    while (true) {
      // Taken before it is sent, so that the senders together do not go beyond.
      while (!isOver && sent + BULK > startedCount - before + UNDER_WAY) await pause(1);
      if (isOver) return;
      sent += BULK;
      await peer.sendMany(bulk());
    }
  });
  await during(sending, pause(WARM_UP));
  const [begun, startedThen] = [performance.now(), startedCount];
  await during(sending, pause(given.each));
  isOver = true;
  await sending;
  await untilDone(peer, "both, in bulk", sent, before, startedThen, begun);
}

/** The rate up to the moment when the database says that nothing is left. */
async function untilDone(peer, what, sent, before, startedThen, begun) {
  const stopped = performance.now();
  const hasTime = () => performance.now() - stopped < PATIENCE;
  while (startedCount - before < sent && hasTime()) await pause(1);
  let left = await peer.unfinished();
  while (left > 0 && hasTime()) {
    await pause(5);
    left = await peer.unfinished();
  }
  const now = performance.now();
  const rate = (Math.max(0, sent - left - (startedThen - before)) / (now - begun)) * 1000;
  let beside = besides(sent, now - stopped);
  if (left > 0) beside = `${left} of ${sent} jobs were not done ${PATIENCE / 1000} s after the end of the sends`;
  const twice = startedCount - before - sent;
  if (twice > 0) beside += `; ${twice} ran twice`;
  put(what, rate, "a second", beside);
  if (left > 0) throw new Error("jobs are left, so nothing more is measured here");
}

async function idle(peer) {
  const [starts, ends, begun] = [[], [], performance.now()];
  while (starts.length < JOBS && performance.now() - begun < IDLE_FOR) {
    await pause(PAUSE);
    const one = job();
    const start = startOf(one.number);
    const sent = performance.now();
    const end = await peer.send(one);
    if (peer.tells) await end();
    else while ((await peer.unfinished()) > 0);
    ends.push(performance.now() - sent);
    starts.push((await start) - sent);
  }
  putLatency("idle, to the start", starts);
  putLatency("idle, to the end", ends);
}

function besides(sent, tail) {
  return `${sent} jobs; the last one ${(tail / 1000).toFixed(2)} s after the end of the sends`;
}

function job() {
  next += 1;
  return { number: next, text: TEXT };
}

function bulk() {
  return Array.from({ length: BULK }, job);
}

function startOf(number) {
  return new Promise((resolve) => waiting.set(number, resolve));
}

function times(count, what) {
  return Promise.all(Array.from({ length: count }, what));
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Waits for `until`, and fails as soon as `doing` does. */
function during(doing, until) {
  return Promise.race([until, doing.then(() => until)]);
}

async function rateOf(given, done, sending) {
  await during(sending, pause(WARM_UP));
  const [begun, before] = [performance.now(), done()];
  await during(sending, pause(given.each));
  return ((done() - before) / (performance.now() - begun)) * 1000;
}

function putLatency(what, samples) {
  const counted = samples.slice(Math.min(UNCOUNTED, Math.floor(samples.length / 2))).sort((a, b) => a - b);
  for (const [name, share] of [["p50", 0.5], ["p99", 0.99]]) {
    const place = Math.min(Math.floor(counted.length * share), counted.length - 1);
    if (place >= 0) put(`${what}, ${name}`, counted[place], "ms", `${counted.length} jobs`);
  }
}

/** The lines that the driver reads: one JSON value each, on standard output. */
function put(what, value, unit, beside = "") {
  say({ what, value, unit, beside });
}

function note(name, text) {
  say({ note: name, text });
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
