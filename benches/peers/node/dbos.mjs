// DBOS: workflows whose steps are checkpointed in PostgreSQL.

import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk";
import { CONNECTIONS, measure, parse, started } from "./load.mjs";

const given = parse();
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };

async function nothing(job) {
  started(job.number);
}
const workflow = DBOS.registerWorkflow(nothing, { name: "nothing" });
DBOS.setConfig({ name: "peers", systemDatabaseUrl: given.database, systemDatabasePoolSize: CONNECTIONS, logger: quiet });
// A launch makes the tables, for the client too.
await DBOS.launch();

let send;
if (given.hasWorkers) {
  send = async (job) => {
    const handle = await DBOS.startWorkflow(workflow)(job);
    return () => handle.getResult();
  };
} else {
  await DBOS.shutdown();
  const client = await DBOSClient.create({ systemDatabaseUrl: given.database, systemDatabasePoolSize: CONNECTIONS, applicationName: "peers" });
  send = (job) => client.enqueue({ workflowName: "nothing", queueName: "nobody" }, job);
}

await measure(given, {
  settings: given.hasWorkers
    ? `systemDatabasePoolSize ${CONNECTIONS}; startWorkflow in the process that sends, without a queue; a workflow without a step`
    : `systemDatabasePoolSize ${CONNECTIONS}; DBOSClient.enqueue`,
  end: "getResult, in the process that ran it",
  tells: true,
  send,
});
process.exit(0);
