//! Temporary conditions: each one disturbs the processes for a while, and work then continues by itself. No event is lost, no success is
//! recorded as a failure, nothing hangs, and locked rows delay no other instance.

pub mod file;
pub mod server;

use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::Spec;
use crate::ledger::{self, Line};
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::small_disk::{SmallDisk, current_user_id};
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};
use server::Locked;

/// The limit for work to continue after a condition has ended.
const RESUME_LIMIT: Duration = Duration::from_secs(10);
/// The limit for all instances to settle. A failed claim is retried after a poll interval, and a send after 100 ms.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// The limit on the 99th percentile for instances that were not locked.
const P99: Duration = Duration::from_secs(1);
/// The minimum number of answers for which the 99th percentile is judged.
const FEWEST: usize = 100;
/// The assumed duration of an answer that is an error.
const FAILED_US: u64 = 10_000_000;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    match kind {
        Kind::Postgres => {
            let test_run = TestRun::open(test_server, "conditions", kind, size.seed).await?;
            run_conditions(test_run, None, size).await
        }
        Kind::Sqlite => {
            let folder = Folder::new("conditions-sqlite")?;
            let disk = SmallDisk::mount(folder.path().join("small"), file::DISK_MIB, current_user_id()?)?;
            let url = format!("sqlite://{}/faults.db", disk.path().display());
            let mut test_run = TestRun::at(test_server, kind, size.seed, folder, url).await?;
            test_run.prefix = file::prefix()?;
            run_conditions(test_run, Some(disk), size).await
        }
    }
}

async fn run_conditions(mut test_run: TestRun<'_>, disk: Option<SmallDisk>, size: Size) -> Result<Report, Failure> {
    let transitions = i64::try_from(size.transitions(0, 200_000))?;
    let each = if size.is_short { Duration::from_millis(800) } else { Duration::from_secs(3) };
    let rounds = size.kills(1, 5);
    // Longer than every condition, so that no lease expires.
    test_run.lease = Duration::from_secs(20);
    test_run.settle_within = SETTLE_LIMIT;
    for _ in 0..2 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: Load { callers: 12, is_timed: true, ..spec.load }, ..spec })?;
    }
    let sender = test_run.sender();
    test_run.start(&Spec { load: Load { callers: 12, is_timed: true, ..sender.load }, ..sender })?;
    wait_for_progress(&mut test_run, "the start").await?;

    let names: Vec<&'static str> = if disk.is_some() { file::NAMES.to_vec() } else { server::NAMES.to_vec() };
    let (mut random, mut locked, mut round) = (Random::new(size.seed), Vec::new(), 0);
    while round < rounds || test_run.transitions().await? < transitions {
        round += 1;
        let mut order = names.clone();
        while !order.is_empty() {
            let name = order.swap_remove(usize::try_from(random.below(order.len() as u64))?);
            match &disk {
                Some(disk) => file::impose(&test_run, disk, name, each).await?,
                None => locked.extend(server::impose(&mut test_run, name, each).await?),
            }
            wait_for_progress(&mut test_run, name).await?;
        }
    }
    test_run.note(format!("{round} rounds of {}", names.join(", ")));
    if disk.is_none() {
        judge_latencies(&mut test_run, &locked)?;
    }
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost, for every worker lives");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error, because no verb fails permanently");
    drop(disk);
    Ok(report)
}

/// Waits until transitions are committed again after the end of a condition.
pub async fn wait_for_progress(test_run: &mut TestRun<'_>, name: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    let before = test_run.transitions().await?;
    while test_run.transitions().await? < before + 20 {
        if begun.elapsed() > RESUME_LIMIT {
            test_run.require(false, format!("work continues within {RESUME_LIMIT:?} after {name}"));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Judges the durations of the answers for instances that were not locked, while others were.
fn judge_latencies(test_run: &mut TestRun<'_>, locked: &[Locked]) -> Result<(), Failure> {
    let (mut sent, mut settled) = (Times::default(), Times::default());
    for of_process in ledger::read_all(test_run.folder.path())? {
        for line in of_process.lines {
            let Line::Latency { key, began_us, took_us, is_send, is_ok } = line else { continue };
            let times = if is_send { &mut sent } else { &mut settled };
            // The duration of an error is at least that of the wait that it ended.
            let took_us = if is_ok { took_us } else { took_us.max(FAILED_US) };
            // A wait that began earlier shows the effect of an earlier condition, which has ended before.
            if locked.iter().any(|one| (one.from_us..one.until_us).contains(&began_us) && !one.keys.contains(&key)) {
                times.locked_us.push(took_us);
            } else if locked.iter().any(|one| (one.calm_from_us..one.from_us).contains(&began_us)) {
                times.calm_us.push(took_us);
            }
        }
    }
    for (what, mut times) in [("acknowledged", sent), ("settled", settled)] {
        let (Some(p99), Some(calm)) = (p99_of(&mut times.locked_us), p99_of(&mut times.calm_us)) else {
            test_run.require(false, format!("something is {what} while rows are locked, and before"));
            continue;
        };
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let count = times.locked_us.len();
        test_run.note(format!("{count} {what} beside locked rows, 99 % within {:.0} ms, and within {:.0} ms before", ms(p99), ms(calm)));
        // A machine that is busy with other things may be slower than the limit without any lock.
        let limit = P99.max(calm * 3 / 2);
        // With fewer answers, the 99th percentile is the slowest one, so a short run only notes it.
        if count >= FEWEST {
            test_run.require(p99 < limit, format!("99 % of what nobody locked are {what} within {limit:?}, not {p99:?}"));
        }
    }
    Ok(())
}

/// The durations of answers, in microseconds.
#[derive(Default)]
struct Times {
    /// Those for instances that were not locked, while others were.
    locked_us: Vec<u64>,
    /// Those of the same length of time before.
    calm_us: Vec<u64>,
}

/// The 99th percentile.
fn p99_of(times_us: &mut [u64]) -> Option<Duration> {
    times_us.sort_unstable();
    times_us.get(times_us.len() * 99 / 100).map(|us| Duration::from_micros(*us))
}
