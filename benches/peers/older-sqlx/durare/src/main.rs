//! durare: workflows whose steps are checkpointed in PostgreSQL, on the tables of DBOS.

use std::sync::Arc;

use durare::{Client, DurableContext, DurableEngine, PostgresProvider, WorkflowOptions};
use load::{Arguments, CONNECTIONS, End, Job, Peer};
use sqlx::postgres::PgPoolOptions;

#[derive(Clone)]
enum Durare {
    Sending(Arc<Client>),
    Working(Arc<DurableEngine>),
}

async fn nothing(_context: DurableContext, job: Job) -> durare::Result<()> {
    load::job_started(job.number);
    Ok(())
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&arguments.database).await?;
    let provider = Arc::new(PostgresProvider::from_pool(pool));
    // This creates the tables, which the client needs too.
    let mut builder = DurableEngine::builder(provider.clone());
    builder.register("nothing", nothing);
    let engine = builder.build().await?;
    let peer = if arguments.has_workers() {
        engine.launch().await?;
        Durare::Working(engine.into())
    } else {
        Durare::Sending(Client::new(provider).into())
    };
    load::measure(&arguments, peer).await?;
    std::process::exit(0)
}

impl Peer for Durare {
    const REPORTS_END: bool = true;
    const HAS_BULK: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        match self {
            Durare::Sending(client) => {
                client.enqueue::<_, ()>("nobody", "nothing", job, WorkflowOptions::default()).await?;
                Ok(End::Unreported)
            }
            Durare::Working(engine) => {
                let handle = engine.start::<_, ()>("nothing", job, WorkflowOptions::default()).await?;
                Ok(End::Reported(Box::pin(async move { Ok(handle.await?) })))
            }
        }
    }

    fn settings(&self) -> String {
        match self {
            Durare::Sending(_) => format!("max_connections {CONNECTIONS}; Client::enqueue"),
            Durare::Working(_) => {
                format!("max_connections {CONNECTIONS}; start in the process that sends, without a queue; a workflow without a step")
            }
        }
    }

    fn end_detection(&self) -> &'static str {
        "each caller awaits its handle, in the process that ran it"
    }
}
