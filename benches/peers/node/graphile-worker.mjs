// graphile-worker: a queue on PostgreSQL; it deletes what is done.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { CONNECTIONS, asking, measure, parse, started } from "./load.mjs";

const given = parse();
const connection = { connectionString: given.database, maxPoolSize: CONNECTIONS };
// What goes wrong is said, what goes well is not: a line a job would be measured too.
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

// As its page on performance has it: jobs are fetched and completed in batches.
const many = { concurrentJobs: 500, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
// For a single job batches are only a delay.
const few = { concurrentJobs: 24 };
const worker = { ...connection, ...(given.isIdle ? few : many) };

const utils = await makeWorkerUtils({ ...connection, logger });
await utils.migrate();
if (given.hasWorkers) {
  await run({
    preset: { worker },
    logger,
    noHandleSignals: true,
    taskList: { nothing: async (payload) => started(payload.number) },
  });
}

await measure(given, {
  settings: given.hasWorkers ? JSON.stringify({ ...worker, connectionString: undefined }) : `maxPoolSize ${CONNECTIONS}`,
  end: "it deletes the row, and tells nobody: callers go on at the start; at the end, and idle, the table is asked until it is empty",
  send: (job) => utils.addJob("nothing", job),
  sendMany: (jobs) => utils.addJobs(jobs.map((payload) => ({ identifier: "nothing", payload }))),
  unfinished: await asking(given.database, "select count(*) from graphile_worker.jobs"),
});
process.exit(0);
