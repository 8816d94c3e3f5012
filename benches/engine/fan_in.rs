//! Fan-in: 2,000 events from as many senders to one instance whose inbox holds 1,000.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::database::BenchDatabase;
use crate::machine::{Begin, CENTRE, Counters, Pulse, Report as Sends, text};
use crate::report::Report;

/// The number of senders, and of their events.
const SENDERS: u64 = 2000;
/// The limit of the inbox.
const INBOX: u64 = 1000;
/// An event that does not arrive by then is lost.
const LIMIT: Duration = Duration::from_secs(120);

/// Measures the time from the first send until the last event has arrived.
pub async fn measure(bench_database: &BenchDatabase, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let ended = Arc::<Counters>::default();
    let runtime = bench_database.builder().inbox_limit(INBOX).data(Arc::clone(&ended)).start().await?;
    let pulses = runtime.machine::<Pulse>();
    pulses.send(CENTRE, Begin { text: text() }).await?;
    let begun = Instant::now();
    let sends = (0..SENDERS).map(|n| std::future::IntoFuture::into_future(pulses.send(format!("sender-{n}"), Sends { text: text() })));
    try_join_all(sends).await?;
    while ended.reports.load(Ordering::Relaxed) < SENDERS {
        if begun.elapsed() > LIMIT {
            return Err(format!("{} of {SENDERS} events arrived", ended.reports.load(Ordering::Relaxed)).into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = SENDERS as f64 / begun.elapsed().as_secs_f64();
    report.put("fan-in to one instance", rate, "a second", format!("{SENDERS} senders, an inbox of {INBOX}"));
    let violations = runtime.check_invariants().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}
