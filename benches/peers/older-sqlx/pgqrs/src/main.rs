//! pgqrs: a queue on PostgreSQL. It marks the rows of finished jobs as archived.

use std::sync::Arc;
use std::time::Duration;

use load::{Arguments, CONNECTIONS, End, Job, Peer};
use pgqrs::store::AnyStore;
use pgqrs::{Config, Producer, QueueMessage};
use sqlx::postgres::{PgPool, PgPoolOptions};

const QUEUE: &str = "nothing";
const CONSUMERS: usize = 2;

#[derive(Clone)]
struct Pgqrs {
    /// For queries about the jobs that are left.
    pool: PgPool,
    producer: Arc<Producer>,
    settings: String,
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let mut config = Config::from_dsn(&arguments.database);
    config.max_connections = CONNECTIONS;
    // The default is a thousand jobs a second.
    config.validation_config.max_enqueue_per_second = None;
    let store = pgqrs::connect_with_config(&config).await?;
    pgqrs::admin(&store).install().await?;
    pgqrs::admin(&store).create_queue(QUEUE).await?;
    let mut settings = format!("max_connections {CONNECTIONS}, max_enqueue_per_second none");
    if arguments.has_workers() {
        let (batch, consumers) = if arguments.is_idle() { (1, 1) } else { (500, CONSUMERS) };
        settings += &format!(", {consumers} consumers with batches of {batch}, a poll every ms");
        for consumer in 0..consumers {
            tokio::spawn(consume(store.clone(), consumer, batch));
        }
    }
    let producer = Arc::new(pgqrs::producer("sender", QUEUE).create(&store).await?);
    let pool = PgPoolOptions::new().max_connections(1).connect(&arguments.database).await?;
    load::measure(&arguments, Pgqrs { pool, producer, settings }).await?;
    std::process::exit(0)
}

async fn consume(store: AnyStore, number: usize, batch: usize) -> pgqrs::Result<()> {
    let consumer = pgqrs::consumer(&format!("consumer-{number}"), QUEUE).create(&store).await?;
    let dequeue = pgqrs::dequeue().worker(&consumer).batch(batch).poll_interval(Duration::from_millis(1));
    dequeue.handle_batch(nothing).poll(&store).await
}

async fn nothing(messages: Vec<QueueMessage>) -> pgqrs::Result<()> {
    for message in messages {
        load::job_started(message.payload["number"].as_u64().unwrap_or_default());
    }
    Ok(())
}

impl Peer for Pgqrs {
    const REPORTS_END: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        self.producer.enqueue(&serde_json::to_value(job)?).await?;
        Ok(End::Unreported)
    }

    async fn send_many(&self, jobs: Vec<Job>) -> load::Result {
        let jobs = jobs.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        self.producer.batch_enqueue(&jobs).await?;
        Ok(())
    }

    async fn unfinished(&self) -> load::Result<u64> {
        let left = "select count(*) from pgqrs_messages where archived_at is null";
        Ok(sqlx::query_scalar::<_, i64>(left).fetch_one(&self.pool).await? as u64)
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn end_detection(&self) -> &'static str {
        "it marks the row, and tells nobody: callers go on at the start; at the end, and idle, the table is asked for rows that are not archived"
    }
}
