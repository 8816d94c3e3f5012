//! A cancellation while a charge waits for a retry in an hour: the time from the send until the instance has ended.

use std::error::Error;
use std::time::{Duration, Instant};

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::database::BenchDatabase;
use crate::report::Report;

/// The number of cancellations.
const CANCELLATIONS: usize = 200;
/// The limit for anything that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cancel;

#[verb]
async fn opened(_event: Open) -> Result {
    Ok(())
}
#[verb]
#[retry("1h")]
async fn charged(_event: Charge) -> Result {
    Err(Failure::new("the bank is away"))
}
#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

fsm! {
    machine Subscription = "bench_subscription" {
        start opened;
        opened -> charged;
        opened -> cancelled interrupts;
        end charged, cancelled;
    }
}

/// Measures one cancellation after the other.
pub async fn measure(bench_database: &BenchDatabase, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let runtime =
        bench_database.builder().only::<Subscription>().data(std::sync::Arc::<crate::machine::Counters>::default()).start().await?;
    let subscriptions = runtime.machine::<Subscription>();
    let mut took = Vec::new();
    for key in (0..CANCELLATIONS).map(|n| format!("s-{n}")) {
        subscriptions.send(&key, Open).await?;
        subscriptions.send(&key, Charge).await?;
        let begun = Instant::now();
        while subscriptions.get(&key).await?.and_then(|found| found.call).is_none_or(|call| call.attempt < 2) {
            if begun.elapsed() > LIMIT {
                return Err(format!("{key} is not retried").into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begun = Instant::now();
        subscriptions.send(&key, Cancel).await?;
        let ended = subscriptions.settled(&key).within(LIMIT).await?;
        took.push(begun.elapsed());
        if ended.status != Status::Completed {
            return Err(format!("{key} is {}", ended.status).into());
        }
    }
    took.sort_unstable();
    let ms = |index: usize| took[index].as_secs_f64() * 1000.0;
    let comment = format!("median of {CANCELLATIONS}; the slowest of 99 % took {:.1} ms", ms(CANCELLATIONS * 99 / 100 - 1));
    report.put("cancellation during a retry", ms(CANCELLATIONS / 2), "ms", comment);
    Ok(runtime.shutdown().await?)
}
