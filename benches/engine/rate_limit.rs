//! Limits: starts per second over several processes, and calls through a limit beside those of an unlimited verb.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::{Client, LimitSetting, SendItem};
use serde::{Deserialize, Serialize};

use crate::arguments::{Arguments, Instances};
use crate::database::BenchDatabase;
use crate::load::{Load, begin_all};
use crate::machine::{Counters, now_us};
use crate::processes::{ChildProcess, print_line, wait_for_line};
use crate::report::{Report, percentiles};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The rate limit, in starts per second.
const RATE: u32 = 20;
/// The time over which starts are counted.
const MEASURED_TIME: Duration = Duration::from_secs(20);
/// The limit of concurrent calls, for the calls of a backlog.
const CONCURRENCY_LIMIT: u32 = 5;
/// The callers of the unlimited verb, and their instances.
const CALLERS: usize = 16;
const INSTANCES: usize = 2000;
/// The time limit for all calls of the backlog to start.
const LIMIT: Duration = Duration::from_secs(1800);

/// The name of the limit.
const NAME: &str = "bench";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ask;

/// When each limited call started, in microseconds since 1970.
#[derive(Debug, Default)]
struct Starts {
    at_us: std::sync::Mutex<Vec<u64>>,
    count: AtomicU64,
}

#[verb(limit = "bench")]
async fn answered(starts: Data<Arc<Starts>>, _event: Ask) -> fsm::Result {
    starts.at_us.lock().expect("no verb panics while it holds the list").push(now_us());
    starts.count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fsm! {
    machine Limited = "bench_limited" {
        start answered;
        end answered;
    }
}

/// Measures the rate of starts over 1, 2 and 8 processes, and a backlog that goes through a limit of concurrent calls.
pub async fn measure(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    for processes in [1, 2, 8] {
        let (mean, lowest, highest) = measure_starts(bench_database, processes).await?;
        let comment =
            format!("limit {RATE}; the fewest and the most within a second {lowest} and {highest}, over {} s", MEASURED_TIME.as_secs());
        report.put(format!("starts under a rate limit, {processes} processes"), mean, "a second", comment);
    }
    backlog(bench_database, arguments, report).await
}

/// Returns the mean number of starts within a second, the lowest and the highest.
async fn measure_starts(bench_database: &BenchDatabase, processes: usize) -> Result<(f64, usize, usize)> {
    let client = Client::connect(&bench_database.url).await?;
    let mut children = Vec::new();
    for _ in 0..processes {
        children.push(ChildProcess::begin(bench_database, &["limited", "0", "0"])?);
    }
    children.iter_mut().try_for_each(|child| child.line().map(drop))?;
    // The waiting calls are more than can start in the time.
    let calls = u64::from(RATE) * (MEASURED_TIME.as_secs() + 10);
    let items = (0..calls).map(|n| SendItem::new(format!("rate-{processes}-{n}"), Ask));
    for sent in client.machine::<Limited>().send_many(items).collect().await? {
        sent?;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let from_us = now_us();
    tokio::time::sleep(MEASURED_TIME).await;
    children.iter_mut().try_for_each(ChildProcess::go)?;
    let mut starts = Vec::new();
    for mut child in children {
        starts.extend(child.line()?.split(' ').filter_map(|at| at.parse::<u64>().ok()));
        child.end()?;
    }
    // Those that are left start before the next measurement, which has a rate of its own.
    let seconds = (0..MEASURED_TIME.as_secs()).map(|n| from_us + n * 1_000_000);
    let within: Vec<usize> = seconds.map(|from| starts.iter().filter(|at| (from..from + 1_000_000).contains(*at)).count()).collect();
    let sum: usize = within.iter().sum();
    let (lowest, highest) = (within.iter().min().copied().unwrap_or(0), within.iter().max().copied().unwrap_or(0));
    Ok((sum as f64 / MEASURED_TIME.as_secs_f64(), lowest, highest))
}

/// The task of a child process: runs limited calls until the parent process speaks, and says when they started.
pub async fn work(url: &str) -> Result {
    let starts = Arc::<Starts>::default();
    let runtime = limited_builder(fsm::Runtime::builder().database(url), Limit::per_second(RATE), &starts).start().await?;
    print_line("ready")?;
    wait_for_line()?;
    let at_us: Vec<String> = starts.at_us.lock().map_err(|_| "a verb panicked")?.iter().map(u64::to_string).collect();
    print_line(&at_us.join(" "))?;
    wait_for_line()?;
    Ok(runtime.shutdown().await?)
}

fn limited_builder(builder: fsm::Builder, limit: LimitSetting, starts: &Arc<Starts>) -> fsm::Builder {
    builder.only::<Limited>().limit(NAME, limit).data(Arc::clone(starts))
}

/// Measures an unlimited verb alone and beside the calls of a backlog that go through a limit.
async fn backlog(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    let (ended, starts) = (Arc::<Counters>::default(), Arc::<Starts>::default());
    let runtime =
        limited_builder(bench_database.builder().data(Arc::clone(&ended)), Limit::concurrency(CONCURRENCY_LIMIT), &starts).start().await?;
    begin_all(&runtime, "beside", INSTANCES).await?;
    let load = || Load::begin(&runtime, "beside", Instances::as_made(INSTANCES), CALLERS);
    let alone = load();
    tokio::time::sleep(MEASURED_TIME).await;
    put(report, format!("an unlimited verb alone, {CALLERS} callers"), alone, MEASURED_TIME).await?;

    let load_beside = load();
    let begun = Instant::now();
    let calls = arguments.calls;
    let before = starts.count.load(Ordering::Relaxed);
    let items = (0..calls).map(|n| SendItem::new(format!("backlog-{n}"), Ask));
    for sent in runtime.machine::<Limited>().send_many(items).collect().await? {
        sent?;
    }
    let sent = begun.elapsed();
    while starts.count.load(Ordering::Relaxed) - before < calls {
        if begun.elapsed() > LIMIT {
            return Err(format!("{} of {calls} calls started", starts.count.load(Ordering::Relaxed) - before).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = begun.elapsed();
    let rate = calls as f64 / took.as_secs_f64();
    report.put(
        format!("{calls} calls through a limit of {CONCURRENCY_LIMIT}"),
        rate,
        "a second",
        format!("all were sent after {sent:.1?}"),
    );
    put(report, format!("the unlimited verb beside them, {CALLERS} callers"), load_beside, took).await?;
    let violations = runtime.check_invariants().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}

async fn put(report: &mut Report, what: String, load: Load, over: Duration) -> Result {
    let took = load.end().await?;
    let rate = took.len() as f64 / over.as_secs_f64();
    let (median, p99) = percentiles(took);
    report.put(what, rate, "a second", format!("p50 {median:.2} ms, p99 {p99:.2} ms"));
    Ok(())
}
