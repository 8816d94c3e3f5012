//! apalis with its PostgreSQL backend: a queue. It keeps the row of a finished job, with its result.

use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use load::{Arguments, CONNECTIONS, End, Job, Peer};
use sqlx::postgres::{PgPool, PgPoolOptions};

const QUEUE: &str = "nothing";
const WORKERS: usize = 2;

#[derive(Clone)]
struct Apalis {
    pool: PgPool,
    storage: PostgresStorage<Job>,
    settings: String,
}

async fn nothing(job: Job) -> Result<(), BoxDynError> {
    load::job_started(job.number);
    Ok(())
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&arguments.database).await?;
    PostgresStorage::setup(&pool).await?;
    // One fetch reads a batch, and acknowledgements are written in batches of the same size.
    let (batch, workers) = if arguments.is_idle() { (10, 1) } else { (500, WORKERS) };
    let config = Config::default().queue(QUEUE).batch_size(batch);
    let storage = PostgresStorage::new(&pool).with_config(config);
    let mut settings = format!("max_connections {CONNECTIONS}");
    if arguments.has_workers() {
        settings += &format!(", batch_size {batch}, {workers} workers, pubsub");
        for worker in 0..workers {
            let worker = WorkerBuilder::new(format!("worker-{worker}"))
                .backend(storage.clone().with_pubsub().poll_with_interval(Duration::from_millis(100)))
                .build(nothing);
            tokio::spawn(worker.run());
        }
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
        let left: i64 = sqlx::query_scalar("select count(*) from apalis.jobs where status <> 'Done'").fetch_one(&self.pool).await?;
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
