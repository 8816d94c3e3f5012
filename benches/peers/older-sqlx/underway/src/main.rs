//! underway: durable steps on PostgreSQL. It keeps the rows of finished jobs for a while.

use std::sync::Arc;

use load::{Arguments, CONNECTIONS, End, Job, Peer};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Postgres, Transaction};
use underway::{Queue, Task, Worker, task};

/// Each running task holds a connection.
const CONCURRENCY: usize = 16;

struct Nothing;

impl Task for Nothing {
    type Input = Job;
    type Output = ();

    async fn execute(&self, _transaction: Transaction<'_, Postgres>, job: Job) -> task::Result<()> {
        load::job_started(job.number);
        Ok(())
    }
}

#[derive(Clone)]
struct Underway {
    pool: PgPool,
    queue: Arc<Queue<Nothing>>,
    has_workers: bool,
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS + 2 * CONCURRENCY as u32).connect(&arguments.database).await?;
    underway::run_migrations(&pool).await?;
    let queue = Arc::new(Queue::builder().name("nothing").pool(pool.clone()).build().await?);
    if arguments.has_workers() {
        let mut worker = Worker::new(Arc::clone(&queue), Nothing);
        worker.set_concurrency_limit(CONCURRENCY);
        tokio::spawn(async move { worker.run().await });
    }
    load::measure(&arguments, Underway { pool, queue, has_workers: arguments.has_workers() }).await?;
    std::process::exit(0)
}

impl Peer for Underway {
    const REPORTS_END: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        self.queue.enqueue(&self.pool, &Nothing, &job).await?;
        Ok(End::Unreported)
    }

    async fn send_many(&self, jobs: Vec<Job>) -> load::Result {
        self.queue.enqueue_multi(&self.pool, &Nothing, &jobs).await?;
        Ok(())
    }

    async fn unfinished(&self) -> load::Result<u64> {
        let left = "select count(*) from underway.task where state in ('pending', 'in_progress')";
        Ok(sqlx::query_scalar::<_, i64>(left).fetch_one(&self.pool).await? as u64)
    }

    fn settings(&self) -> String {
        let connections = CONNECTIONS + 2 * CONCURRENCY as u32;
        let working = if self.has_workers { format!(", concurrency limit {CONCURRENCY}") } else { String::new() };
        format!("max_connections {connections}{working}")
    }

    fn end_detection(&self) -> &'static str {
        "it marks the row, and tells nobody: callers go on at the start; at the end, and idle, the table is asked for rows that are not done"
    }
}
