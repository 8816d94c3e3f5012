//! apalis with its SQLite backend: a queue in a file. It keeps the row of a finished job, with its result.

use std::time::Duration;

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage};
use load::{Arguments, End, Job, Peer};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

const QUEUE: &str = "nothing";
/// More connections would only wait for each other, because SQLite has one writer.
const CONNECTIONS: u32 = 1;
const POLL: Duration = Duration::from_millis(5);
const HEARTBEAT: Duration = Duration::from_millis(250);

#[derive(Clone)]
struct Apalis {
    pool: SqlitePool,
    storage: SqliteStorage<Job>,
    settings: String,
}

async fn nothing(job: Job) -> Result<(), BoxDynError> {
    load::job_started(job.number);
    Ok(())
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let synchronous = if arguments.synchronous == "normal" { SqliteSynchronous::Normal } else { SqliteSynchronous::Full };
    let options = SqliteConnectOptions::new().filename(arguments.file()).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(synchronous).busy_timeout(Duration::from_secs(30));
    // Its set-up turns `synchronous` off for the connection that it uses, so this connection is closed afterwards.
    let making = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
    SqliteStorage::setup(&making).await?;
    making.close().await;
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
    let batch = if arguments.is_idle() { 10 } else { 500 };
    // If a fetch takes longer than the pause between polls, polling can stop until the next heartbeat, which is after 30 s by default.
    let config = Config::default().queue(QUEUE).batch_size(batch).heartbeat_interval(HEARTBEAT).missed_heartbeats(240);
    let storage = SqliteStorage::new(&pool).with_config(config);
    let mut settings = format!("synchronous {}, {CONNECTIONS} connection", arguments.synchronous);
    if arguments.has_workers() {
        settings += &format!(", batch_size {batch}, poll every {} ms, heartbeat every {} ms", POLL.as_millis(), HEARTBEAT.as_millis());
        let backend = storage.clone().poll_with_interval(POLL);
        tokio::spawn(WorkerBuilder::new("worker").backend(backend).build(nothing).run());
    }
    load::measure(&arguments, Apalis { pool, storage, settings }).await?;
    std::process::exit(0)
}

impl Peer for Apalis {
    const REPORTS_END: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        self.storage.clone().push(job).await?;
        Ok(End::Unreported)
    }

    async fn send_many(&self, jobs: Vec<Job>) -> load::Result {
        Ok(self.storage.clone().push_bulk(jobs).await?)
    }

    async fn unfinished(&self) -> load::Result<u64> {
        let left: i64 = sqlx::query_scalar("select count(*) from Jobs where status <> 'Done'").fetch_one(&self.pool).await?;
        Ok(left as u64)
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn end_detection(&self) -> &'static str {
        "it marks the row; its own wait asks each half second, so callers go on at the start; at the end, and idle, the table is asked for rows \
         that are not done"
    }
}
