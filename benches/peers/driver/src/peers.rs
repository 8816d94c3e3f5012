//! The list of peers, with the differences that the figures do not show.

/// The database in which a peer keeps its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Postgres,
    SqliteFull,
    SqliteNormal,
}

/// The program to install and run.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// A package of one of the two workspaces, and the crate that it measures.
    Cargo { workspace: &'static str, package: &'static str, of: &'static str },
    /// A script in `node`, and the npm package that it measures.
    Npm { script: &'static str, of: &'static str },
}

#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub database: Database,
    pub program: Program,
    /// The rows that are left in the database when a job is done.
    pub keeps: &'static str,
    /// The differences from this engine that its figures do not show.
    pub differs: &'static str,
}

const OURS: Program = Program::Cargo { workspace: ".", package: "peer-ours", of: "durable-fsm" };
const APALIS_SQLITE: Program = Program::Cargo { workspace: ".", package: "peer-apalis-sqlite", of: "apalis-sqlite" };

const OURS_KEEPS: &str = "the instance with its state, the event, each attempt and the history of transitions";
const OURS_DIFFERS: &str = "an event for each caller, to an instance that stands; it has no call that sends many";
const JOB_ROW: &str = "the row of the job with its result";
const A_QUEUE: &str = "no state, no history; a job whose end was not yet written runs again after a crash";

pub const PEERS: [Peer; 13] = [
    Peer { name: "ours-postgres", database: Database::Postgres, program: OURS, keeps: OURS_KEEPS, differs: OURS_DIFFERS },
    Peer {
        name: "graphile-worker",
        database: Database::Postgres,
        program: Program::Npm { script: "graphile-worker.mjs", of: "graphile-worker" },
        keeps: "nothing: it deletes the row",
        differs: "no state, no history; what is done waits in memory to be written with others: after a crash all of that runs again",
    },
    Peer {
        name: "pg-boss",
        database: Database::Postgres,
        program: Program::Npm { script: "pg-boss.mjs", of: "pg-boss" },
        keeps: "the row of the job for some days",
        differs: "no state, no history; a batch is done as a whole: after a crash all of it runs again",
    },
    Peer {
        name: "dbos",
        database: Database::Postgres,
        program: Program::Npm { script: "dbos.mjs", of: "@dbos-inc/dbos-sdk" },
        keeps: "the workflow with its input and result, and its steps",
        differs: "the nearest in kind: durable execution; a workflow without a step, which is its fastest, and none stands to be sent to",
    },
    Peer {
        name: "apalis-postgres",
        database: Database::Postgres,
        program: Program::Cargo { workspace: ".", package: "peer-apalis-postgres", of: "apalis-postgres" },
        keeps: JOB_ROW,
        differs: A_QUEUE,
    },
    Peer {
        name: "underway",
        database: Database::Postgres,
        program: Program::Cargo { workspace: "older-sqlx", package: "peer-underway", of: "underway" },
        keeps: "the row of the job for some days, and a row for each attempt",
        differs: "no state, no history beside its attempts; a job runs inside a transaction of its own",
    },
    Peer {
        name: "graphile-worker-rust",
        database: Database::Postgres,
        program: Program::Cargo { workspace: ".", package: "peer-graphile-worker", of: "graphile_worker" },
        keeps: "nothing: it deletes the row",
        differs: "no state, no history; what is done waits in memory to be written with others: after a crash all of that runs again",
    },
    Peer {
        name: "durare",
        database: Database::Postgres,
        program: Program::Cargo { workspace: "older-sqlx", package: "peer-durare", of: "durare" },
        keeps: "the workflow with its input and result, and its steps",
        differs: "near in kind: durable execution as DBOS has it; a workflow without a step",
    },
    Peer {
        name: "pgqrs",
        database: Database::Postgres,
        program: Program::Cargo { workspace: "older-sqlx", package: "peer-pgqrs", of: "pgqrs" },
        keeps: "the row of the job, marked as archived",
        differs: "no state, no history; a batch is archived as a whole: after a crash all of it runs again",
    },
    Peer { name: "ours-sqlite-full", database: Database::SqliteFull, program: OURS, keeps: OURS_KEEPS, differs: OURS_DIFFERS },
    Peer { name: "ours-sqlite-normal", database: Database::SqliteNormal, program: OURS, keeps: OURS_KEEPS, differs: OURS_DIFFERS },
    Peer { name: "apalis-sqlite-full", database: Database::SqliteFull, program: APALIS_SQLITE, keeps: JOB_ROW, differs: A_QUEUE },
    Peer { name: "apalis-sqlite-normal", database: Database::SqliteNormal, program: APALIS_SQLITE, keeps: JOB_ROW, differs: A_QUEUE },
];
