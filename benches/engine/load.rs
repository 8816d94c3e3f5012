//! The callers: each sends an event and waits until its instance is settled before it sends again.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fsm::{Client, Handle, Runtime};
use tokio::task::JoinSet;

use crate::arguments::{Arguments, Instances, Measurement};
use crate::database::BenchDatabase;
use crate::machine::{Begin, Counters, Links, NotBefore, Pulse, Step, now_us, text};
use crate::report::{Report, percentiles};
use crate::sizes::Sizes;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The time for which callers run before the measurement starts.
pub const WARM_UP: Duration = Duration::from_millis(700);
/// The maximum time for retries to finish.
const PATIENCE: Duration = Duration::from_secs(60);
/// The callers that send new events while retries are due, and their instances.
const FRESH_CALLERS: usize = 16;
const FRESH_INSTANCES: usize = 1600;
/// The number of concurrent requests during preparations.
const CONCURRENT_REQUESTS: usize = 1000;

/// Running callers.
pub struct Load {
    callers: JoinSet<Result<Vec<Duration>, fsm::Error>>,
    done: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    /// Starts callers that each use their share of the instances `prefix-0` to `prefix-n` again and again.
    pub fn begin(runtime: &Runtime, prefix: &str, instances: Instances, callers: usize) -> Load {
        let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut load = Load { callers: JoinSet::new(), done, is_over };
        for caller in 0..callers {
            let (handle, prefix) = (runtime.machine::<Pulse>(), prefix.to_owned());
            let (done, is_over) = (Arc::clone(&load.done), Arc::clone(&load.is_over));
            load.callers.spawn(async move {
                let mut took = Vec::new();
                for turn in (caller..instances.count).step_by(callers).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, begun) = (format!("{prefix}-{}", instances.nth(turn)), Instant::now());
                    handle.send(&key, Step { text: text() }).await?;
                    handle.settled(&key).await?;
                    took.push(begun.elapsed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(took)
            });
        }
        load
    }

    /// Measures the transitions per second over `each`.
    pub async fn rate(&self, each: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.done.load(Ordering::Relaxed));
        tokio::time::sleep(each).await;
        (self.done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    }

    /// Returns the number of transitions so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the error of a caller that has ended, if there is one.
    pub fn check(&mut self) -> Result {
        while let Some(ended) = self.callers.try_join_next() {
            ended??;
        }
        Ok(())
    }

    /// Lets the callers finish. Returns the durations of all transitions.
    pub async fn end(mut self) -> Result<Vec<Duration>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        while let Some(ended) = self.callers.join_next().await {
            took.extend(ended??);
        }
        Ok(took)
    }
}

/// Runs the measurements that need a process with workers.
pub async fn measure_with_workers(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    let ended = Arc::<Counters>::default();
    let runtime = bench_database.builder().data(Arc::clone(&ended)).start().await?;
    if arguments.has(Measurement::Idle) {
        idle(&runtime, report).await?;
    }
    if arguments.has(Measurement::Transitions) {
        begin_all(&runtime, "step", arguments.instances().count).await?;
        for &callers in &arguments.callers {
            transitions(&runtime, bench_database, arguments, callers, report).await?;
        }
    }
    if arguments.has(Measurement::Chain) {
        chain(&runtime, &ended, arguments, report).await?;
    }
    if arguments.has(Measurement::Retries) {
        retries(&runtime, &ended, arguments, report).await?;
    }
    bench_database.analyze().await?;
    let violations = runtime.check_invariants().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}

async fn transitions(
    runtime: &Runtime,
    bench_database: &BenchDatabase,
    arguments: &Arguments,
    callers: usize,
    report: &mut Report,
) -> Result {
    let sizes = Sizes::of(bench_database).await?;
    let load = Load::begin(runtime, "step", arguments.instances(), callers);
    tokio::time::sleep(WARM_UP).await;
    let (before, begun) = (processor_seconds()?, Instant::now());
    let rate = load.rate(arguments.each).await;
    let cpu_us = 1e6 * (processor_seconds()? - before) / (rate * begun.elapsed().as_secs_f64());
    let took = load.end().await?;
    let done = took.len();
    let (median, p99) = percentiles(took);
    let most = ["limit, batches of 100", "limit, batches of 250"].into_iter().filter_map(|what| report.value(what)).fold(0.0, f64::max);
    let share = if most > 0.0 { format!("; {:.0} % of the limit", 100.0 * rate / most) } else { String::new() };
    report.put(
        format!("transitions, {callers} callers"),
        rate,
        "a second",
        format!("p50 {median:.2} ms, p99 {p99:.2} ms; {cpu_us:.0} us of CPU each{share}"),
    );
    report.add_comment_line(&format!("each: {}", Sizes::of(bench_database).await?.each(sizes, done as f64)));
    Ok(())
}

/// Returns the processor time of this process in seconds. Unlike a rate, it does not depend on other load of the machine. The time of a
/// database server is not included.
fn processor_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().collect();
    // User and system time, in ticks of 10 ms on every Linux.
    let ticks: f64 = fields.get(11..13).ok_or("no times in /proc/self/stat")?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

/// Measures one caller with pauses, so that nothing else is in progress.
async fn idle(runtime: &Runtime, report: &mut Report) -> Result {
    let handle = runtime.machine::<Pulse>();
    begin_all(runtime, "idle", 20).await?;
    let (mut sent, mut settled) = (Vec::new(), Vec::new());
    for turn in 0..320 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let (key, begun) = (format!("idle-{}", turn % 20), Instant::now());
        handle.send(&key, Step { text: text() }).await?;
        let acknowledged = begun.elapsed();
        handle.settled(&key).await?;
        // The first sends prepare the statements.
        if turn >= 20 {
            sent.push(acknowledged);
            settled.push(begun.elapsed());
        }
    }
    for (what, samples) in [("idle, send acknowledged, p50", sent), ("idle, send to settled, p50", settled)] {
        let (median, p99) = percentiles(samples);
        report.put(what, median, "ms", format!("p99 {p99:.2} ms"));
    }
    Ok(())
}

/// Measures instances that each make many transitions by themselves.
async fn chain(runtime: &Runtime, ended: &Counters, arguments: &Arguments, report: &mut Report) -> Result {
    for count in [1, 256, 2000, 10_000] {
        let prefix = format!("chain{count}");
        begin_all(runtime, &prefix, count).await?;
        let left = u32::MAX / 2;
        for_each_instance(runtime, &prefix, count, move |handle, key| async move {
            handle.send(&key, Links { left, text: text() }).await.map(drop)
        })
        .await?;
        tokio::time::sleep(WARM_UP).await;
        let (begun, before) = (Instant::now(), ended.links.load(Ordering::Relaxed));
        tokio::time::sleep(arguments.each).await;
        let rate = (ended.links.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        // A chain ends only if it is cancelled.
        for_each_instance(runtime, &prefix, count, |handle, key| async move { handle.cancel(&key, "measured").await.map(drop) }).await?;
        let comment = report.value(&format!("transitions, {count} callers"));
        let comment = comment.map(|sends| format!("{:.2} x as many as with a send each", rate / sends)).unwrap_or_default();
        report.put(format!("chain, {count} instances"), rate, "a second", comment);
    }
    Ok(())
}

/// Measures many waiting instances, of which a tenth is due at one time: the time until all of these are done, and the latency of new sends
/// meanwhile.
async fn retries(runtime: &Runtime, ended: &Counters, arguments: &Arguments, report: &mut Report) -> Result {
    let (count, due) = (arguments.waiting, arguments.waiting.div_ceil(10));
    let begun = Instant::now();
    let ready = for_each_instance(runtime, "later", count - due, |handle, key| async move {
        let due_us = now_us() + 3_600_000_000;
        handle.send(&key, NotBefore { due_us }).await.map(drop)
    });
    ready.await?;
    // Long enough to send all of them at a tenth of the usual rate.
    let due_us = now_us() + 3_000_000 + 500 * due as u64;
    for_each_instance(runtime, "retry", due, move |handle, key| async move { handle.send(&key, NotBefore { due_us }).await.map(drop) })
        .await?;
    let prepared = begun.elapsed();
    begin_all(runtime, "fresh", FRESH_INSTANCES).await?;

    let fresh = async |until: &dyn Fn() -> bool| {
        let load = Load::begin(runtime, "fresh", Instances::as_made(FRESH_INSTANCES), FRESH_CALLERS);
        let begun = Instant::now();
        while !until() && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        load.end().await.map(percentiles)
    };
    let quiet_until = Instant::now() + Duration::from_secs(1);
    let before = fresh(&|| Instant::now() >= quiet_until).await?;
    tokio::time::sleep(Duration::from_micros(due_us.saturating_sub(now_us()))).await;
    let begun = Instant::now();
    let through = || ended.waits.load(Ordering::Relaxed) as usize >= due;
    let meanwhile = fresh(&through).await?;
    if !through() {
        return Err("the retries were not through in time".into());
    }
    for_each_instance(runtime, "retry", due, |handle, key| async move { handle.settled(&key).await.map(drop) }).await?;
    let took = begun.elapsed().as_secs_f64();
    let comment = format!("{due} of {count} waiting due at once (sent in {:.0} s): through in {took:.2} s", prepared.as_secs_f64());
    report.put("retries done", due as f64 / took, "a second", comment);
    let was = format!("p99 {:.2} ms; without them p50 {:.2} ms, p99 {:.2} ms", meanwhile.1, before.0, before.1);
    report.put(format!("fresh sends meanwhile, {FRESH_CALLERS} callers, p50"), meanwhile.0, "ms", was);
    Ok(())
}

/// Measures a process without workers, whose events are only stored.
pub async fn measure_sends(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    let client = Client::connect(&bench_database.url).await?;
    for &callers in &arguments.callers {
        let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut senders = JoinSet::new();
        for caller in 0..callers {
            let (handle, done, is_over) = (client.machine::<Pulse>(), Arc::clone(&done), Arc::clone(&is_over));
            senders.spawn(async move {
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    handle.send(format!("sent-{callers}-{caller}-{turn}"), Begin { text: text() }).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, fsm::Error>(())
            });
        }
        tokio::time::sleep(WARM_UP).await;
        let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
        tokio::time::sleep(arguments.each).await;
        let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = senders.join_next().await {
            ended??;
        }
        report.put(format!("enqueue, {callers} callers"), rate, "a second", "each a new instance");
    }
    Ok(())
}

/// Creates the instances `prefix-0` to `prefix-n` and waits until they are settled.
pub async fn begin_all(runtime: &Runtime, prefix: &str, count: usize) -> Result {
    for_each_instance(runtime, prefix, count, |handle, key| async move {
        handle.send(&key, Begin { text: text() }).await?;
        handle.settled(&key).await.map(drop)
    })
    .await
}

/// Does something with each instance, for many instances concurrently.
pub async fn for_each_instance<F>(
    runtime: &Runtime,
    prefix: &str,
    count: usize,
    what: impl Fn(Handle<Pulse>, String) -> F + Clone + Send + 'static,
) -> Result
where
    F: Future<Output = Result<(), fsm::Error>> + Send + 'static,
{
    let mut doing = JoinSet::new();
    for part in 0..CONCURRENT_REQUESTS {
        let (handle, prefix, what) = (runtime.machine::<Pulse>(), prefix.to_owned(), what.clone());
        doing.spawn(async move {
            for instance in (part..count).step_by(CONCURRENT_REQUESTS) {
                what(handle.clone(), format!("{prefix}-{instance}")).await?;
            }
            Ok::<_, fsm::Error>(())
        });
    }
    while let Some(done) = doing.join_next().await {
        done??;
    }
    Ok(())
}
