//! graphile_worker, a queue in Rust. It deletes the rows of finished jobs.

use std::time::Duration;

use graphile_worker::{IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions, WorkerUtils};
use load::{Arguments, CONNECTIONS, End, Job, Peer};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

#[derive(Clone, Serialize, Deserialize)]
struct Nothing(Job);

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        load::job_started(self.0.number);
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Graphile {
    pool: PgPool,
    utils: std::sync::Arc<WorkerUtils>,
    settings: String,
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&arguments.database).await?;
    let mut options = WorkerOptions::default().pg_pool(pool.clone()).define_job::<Nothing>().listen_os_shutdown_signals(false);
    let mut settings = format!("max_connections {CONNECTIONS}");
    if arguments.is_idle() {
        options = options.concurrency(24);
        settings += ", concurrency 24";
    } else if arguments.has_workers() {
        // Jobs are fetched and completed in batches.
        options = options
            .concurrency(500)
            .local_queue(LocalQueueConfig::default().with_size(5000))
            .complete_job_batch_delay(Duration::from_millis(5));
        settings += ", concurrency 500, local_queue 5000, complete_job_batch_delay 5 ms";
    }
    // This creates the tables.
    let worker = options.init().await?;
    let utils = std::sync::Arc::new(worker.create_utils());
    if arguments.has_workers() {
        tokio::spawn(async move { worker.run().await });
    }
    load::measure(&arguments, Graphile { pool, utils, settings }).await?;
    std::process::exit(0)
}

impl Peer for Graphile {
    const REPORTS_END: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        self.utils.add_job(Nothing(job), JobSpec::default()).await?;
        Ok(End::Unreported)
    }

    async fn send_many(&self, jobs: Vec<Job>) -> load::Result {
        let jobs: Vec<_> = jobs.into_iter().map(|job| (Nothing(job), JobSpec::default())).collect();
        self.utils.add_jobs(&jobs.iter().map(|(job, spec)| (job.clone(), spec)).collect::<Vec<_>>()).await?;
        Ok(())
    }

    async fn unfinished(&self) -> load::Result<u64> {
        let left: i64 = sqlx::query_scalar("select count(*) from graphile_worker.jobs").fetch_one(&self.pool).await?;
        Ok(left as u64)
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn end_detection(&self) -> &'static str {
        "it deletes the row, and tells nobody: callers go on at the start; at the end, and idle, the table is asked until it is empty"
    }
}
