//! This engine, through its public API: events to existing instances, each acknowledged, carried out and settled.

use fsm::prelude::*;
use fsm::{Client, Runtime, Synchronous};
use load::{Arguments, End, Job, Peer};
use serde::{Deserialize, Serialize};

/// Creates an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin {
    text: String,
}
/// One transition.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    number: u64,
    text: String,
}

#[verb]
async fn begun(_event: Begin) -> Result {
    Ok(())
}
#[verb]
async fn stepped(event: Step) -> Result {
    load::job_started(event.number);
    Ok(())
}

fsm! {
    machine Pulse = "peers_pulse" {
        start begun;
        any(begun, stepped) -> stepped;
    }
}

/// The number of instances that the steps use in turn.
const INSTANCES: u64 = 20_000;
/// A slot for every caller.
const CONCURRENCY: u32 = 4096;
/// The number of concurrent requests while the instances are created.
const CONCURRENT_REQUESTS: u64 = 1000;

#[derive(Clone)]
enum Ours {
    Sending(Client),
    Working(std::sync::Arc<Runtime>),
}

#[tokio::main]
async fn main() -> load::Result {
    let arguments = Arguments::parse()?;
    let peer = if arguments.has_workers() {
        let synchronous = if arguments.synchronous == "normal" { Synchronous::Normal } else { Synchronous::Full };
        let builder = Runtime::builder().database(&arguments.database).only::<Pulse>();
        let runtime = builder.synchronous(synchronous).concurrency(CONCURRENCY).start().await?;
        begin_all(&runtime).await?;
        Ours::Working(runtime.into())
    } else {
        Ours::Sending(Client::connect(&arguments.database).await?)
    };
    load::measure(&arguments, peer).await?;
    std::process::exit(0)
}

async fn begin_all(runtime: &Runtime) -> load::Result {
    let mut doing = tokio::task::JoinSet::new();
    for part in 0..CONCURRENT_REQUESTS {
        let handle = runtime.machine::<Pulse>();
        doing.spawn(async move {
            for instance in (part..INSTANCES).step_by(CONCURRENT_REQUESTS as usize) {
                let key = key(instance);
                handle.send(&key, Begin { text: Job::new(instance).text }).await?;
                handle.settled(&key).await?;
            }
            Ok::<_, fsm::Error>(())
        });
    }
    while let Some(done) = doing.join_next().await {
        done??;
    }
    Ok(())
}

fn key(number: u64) -> String {
    format!("step-{}", number % INSTANCES)
}

impl Peer for Ours {
    const REPORTS_END: bool = true;
    const HAS_BULK: bool = false;

    async fn send(&self, job: Job) -> load::Result<End> {
        match self {
            // No worker runs, so each event creates a new instance.
            Ours::Sending(client) => {
                client.machine::<Pulse>().send(format!("sent-{}", job.number), Begin { text: job.text }).await?;
                Ok(End::Unreported)
            }
            Ours::Working(runtime) => {
                let (handle, key) = (runtime.machine::<Pulse>(), key(job.number));
                handle.send(&key, Step { number: job.number, text: job.text }).await?;
                Ok(End::Reported(Box::pin(async move { Ok(handle.settled(&key).await.map(drop)?) })))
            }
        }
    }

    fn settings(&self) -> String {
        match self {
            Ours::Sending(_) => "Client, without workers; each event to a new instance".to_owned(),
            Ours::Working(_) => format!("concurrency {CONCURRENCY}; {INSTANCES} instances that exist"),
        }
    }

    fn end_detection(&self) -> &'static str {
        "each caller waits for `settled`"
    }
}
