//! Measures the transitions per second of one process under load, with or without metrics, traces and open pages of the console. `cargo xtask
//! observed` builds it with and without their features, and compares the rates.

mod observers;
mod pages;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use fsm::prelude::*;
use fsm::sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// The library leaves the choice of the allocator to its user. This is that of the other benchmarks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The time for which callers run before the measurement starts.
const WARM_UP: Duration = Duration::from_millis(700);
/// The instances of each caller.
const EACH: usize = 10;

/// The size of an event of the other benchmarks, in bytes.
const SIZE: usize = 180;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    text: String,
}

#[verb]
async fn stepped(_event: Step) -> Result {
    Ok(())
}

fsm! {
    machine Pulse = "pulse" {
        on Step {
            start stepped;
            stepped -> stepped;
        }
    }
}

/// Measures one rate, and prints it.
#[derive(Parser)]
struct Arguments {
    /// A PostgreSQL server, on which a database is made for the measurement, or a SQLite database
    url: String,
    #[arg(long, default_value_t = 2000)]
    callers: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Installs a recorder of the metrics, and renders them each second
    #[arg(long = "metrics")]
    has_metrics: bool,
    /// Installs a layer of OpenTelemetry that records this share of the traces
    #[arg(long, value_name = "SHARE")]
    traces: Option<f64>,
    /// Opens this number of pages of the console, each with its stream of updates
    #[arg(long, default_value_t = 0)]
    pages: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let _observers = observers::install(arguments.has_metrics, arguments.traces)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rate = runtime.block_on(measured(&arguments))?;
    println!("{rate:.0}");
    Ok(())
}

/// Makes a database for the measurement, and deletes it afterwards.
async fn measured(arguments: &Arguments) -> Result<f64, Box<dyn Error>> {
    let Some((server, _)) = arguments.url.rsplit_once('/').filter(|_| arguments.url.starts_with("postgres")) else {
        return rate(&arguments.url, arguments).await;
    };
    let name = format!("observed_{}", std::process::id());
    let mut postgres = PgConnection::connect(&arguments.url).await?;
    postgres.execute(AssertSqlSafe(format!("create database {name}"))).await?;
    let rate = rate(&format!("{server}/{name}"), arguments).await;
    postgres.execute(AssertSqlSafe(format!("drop database {name} with (force)"))).await?;
    rate
}

/// The transitions per second of callers that each send an event and wait until its instance is settled.
async fn rate(url: &str, arguments: &Arguments) -> Result<f64, Box<dyn Error>> {
    let runtime = Runtime::builder().database(url).start().await?;
    let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let mut callers = JoinSet::new();
    for caller in 0..arguments.callers {
        let (pulses, done, is_over) = (runtime.machine::<Pulse>(), Arc::clone(&done), Arc::clone(&is_over));
        callers.spawn(async move {
            for turn in (0..EACH).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{caller}-{turn}");
                pulses.send(&key, Step { text: "x".repeat(SIZE) }).await?;
                pulses.settled(&key).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, fsm::Error>(())
        });
    }
    tokio::time::sleep(WARM_UP).await;
    // The instances exist now.
    let pages = pages::open(&runtime, arguments.pages).await?;
    tokio::time::sleep(WARM_UP).await;
    let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::try_from_secs_f64(arguments.seconds)?).await;
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
    pages.check()?;
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    runtime.shutdown().await?;
    Ok(rate)
}
