// pg-boss: a queue on PostgreSQL; it keeps what is done for some days.

import { PgBoss } from "pg-boss";
import { CONNECTIONS, asking, measure, parse, started } from "./load.mjs";

const given = parse();
const QUEUE = "nothing";
// Batches, several workers, no pause while there is more, and a notification instead of a poll.
const many = { batchSize: 500, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
const few = { batchSize: 1, localConcurrency: 1, pollingIntervalSeconds: 0.5 };
const work = given.isIdle ? few : many;

// A notification keeps commits apart from each other: where nobody listens there is none.
const notify = given.hasWorkers;

const options = { max: CONNECTIONS, connectionTimeoutMillis: 60_000, useListenNotify: notify, supervise: false, schedule: false };
const boss = new PgBoss({ connectionString: given.database, ...options });
boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue(QUEUE, { notify });
if (given.hasWorkers) {
  await boss.work(QUEUE, work, async (jobs) => {
    for (const job of jobs) started(job.data.number);
  });
}

await measure(given, {
  settings: JSON.stringify({ ...options, notify, ...(given.hasWorkers ? work : {}) }),
  end: "it marks the row, and tells nobody: callers go on at the start; at the end, and idle, the table is asked for rows that are not completed",
  send: (job) => boss.send(QUEUE, job),
  sendMany: (jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))),
  unfinished: await asking(given.database, `select count(*) from pgboss.job where name = '${QUEUE}' and state < 'completed'`),
});
process.exit(0);
