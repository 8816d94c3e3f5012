//! Temporary conditions: each one disturbs the processes for a while, and work then continues by itself. No event is lost, no success is
//! recorded as a failure, nothing hangs, and locked rows delay no other instance.

pub mod file;
pub mod server;

use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::Spec;
use crate::ledger::{self, Line};
use crate::load::{Load, now_us};
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::small::{Small, me};
use crate::sql;
use crate::stage::Stage;
use crate::test_server::{Folder, Kind, TestServer};

/// The limit for work to continue after a condition has ended.
const RESUMES: Duration = Duration::from_secs(10);
/// The limit for all instances to settle. A failed claim is retried after a poll interval, and a send after 100 ms.
const REST: Duration = Duration::from_secs(30);
/// The limit on the 99th percentile for instances that were not locked.
const P99: Duration = Duration::from_secs(1);
/// The minimum number of answers for which the 99th percentile is judged.
const FEWEST: usize = 100;
/// The assumed duration of an answer that is an error.
const FAILED_US: u64 = 10_000_000;
/// The size of the filesystem of the SQLite database, except while it is full.
const ENOUGH_MIB: u32 = 4096;

/// Rows that were locked, and the start and end of that time, in microseconds since 1970.
pub struct Locked {
    pub keys: Vec<String>,
    /// The start of a time of equal length before the lock, under no condition.
    pub calm_from_us: u64,
    pub from_us: u64,
    pub until_us: u64,
}

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    match kind {
        Kind::Postgres => {
            let stage = Stage::open(test_server, "conditions", kind, size.seed).await?;
            go_on(stage, None, size).await
        }
        Kind::Sqlite => {
            let folder = Folder::new("conditions-sqlite")?;
            let disk = Small::mount(folder.path().join("small"), ENOUGH_MIB, me()?)?;
            let url = format!("sqlite://{}/faults.db", disk.path().display());
            let mut stage = Stage::at(test_server, kind, size.seed, folder, url).await?;
            stage.prefix = file::prefix()?;
            go_on(stage, Some(disk), size).await
        }
    }
}

async fn go_on(mut stage: Stage<'_>, disk: Option<Small>, size: Size) -> Result<Report, Failure> {
    let transitions = i64::try_from(size.transitions(0, 200_000))?;
    let each = if size.is_short { Duration::from_millis(800) } else { Duration::from_secs(3) };
    let rounds = size.kills(1, 5);
    // Longer than every condition, so that no lease expires.
    stage.lease = Duration::from_secs(20);
    stage.rest_within = REST;
    for _ in 0..2 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: Load { lanes: 12, is_timed: true, ..spec.load }, ..spec })?;
    }
    let sender = stage.sender();
    stage.start(&Spec { load: Load { lanes: 12, is_timed: true, ..sender.load }, ..sender })?;
    resume(&mut stage, "the start").await?;

    let names: Vec<&'static str> = if disk.is_some() { file::NAMES.to_vec() } else { server::NAMES.to_vec() };
    let (mut random, mut locked, mut round) = (Random::new(size.seed), Vec::new(), 0);
    while round < rounds || stage.transitions().await? < transitions {
        round += 1;
        let mut order = names.clone();
        while !order.is_empty() {
            let name = order.swap_remove(usize::try_from(random.below(order.len() as u64))?);
            match &disk {
                Some(disk) => file::impose(&stage, disk, name, each).await?,
                None => locked.extend(server::impose(&mut stage, name, each).await?),
            }
            resume(&mut stage, name).await?;
        }
    }
    stage.note(format!("{round} rounds of {}", names.join(", ")));
    if disk.is_none() {
        judge_latencies(&mut stage, &locked)?;
    }
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost, for every worker lives");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error, because no verb fails permanently");
    drop(disk);
    Ok(report)
}

/// Waits until transitions are committed again after the end of a condition.
pub async fn resume(stage: &mut Stage<'_>, name: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    let before = stage.transitions().await?;
    while stage.transitions().await? < before + 20 {
        if begun.elapsed() > RESUMES {
            stage.require(false, format!("work continues within {RESUMES:?} after {name}"));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until all calls and waiting events of now have ended, so that later measurements show no effect of an earlier condition.
pub async fn calm(stage: &mut Stage<'_>) -> Result<(), Failure> {
    let (begun, moment_us) = (Instant::now(), now_us());
    let mut db = stage.db().await?;
    while db.number_at(sql::OPEN_SINCE, moment_us).await? > 0 {
        if begun.elapsed() > stage.rest_within {
            let says = format!("what was under way when a condition had passed has ended within {:?}", stage.rest_within);
            stage.require(false, says);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Judges the durations of the answers for instances that were not locked, while others were.
fn judge_latencies(stage: &mut Stage<'_>, locked: &[Locked]) -> Result<(), Failure> {
    let (mut sent, mut settled) = (Times::default(), Times::default());
    for told in ledger::read_all(stage.folder.path())? {
        for line in told.lines {
            let Line::Took { key, began_us, took_us, is_send, is_ok } = line else { continue };
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
            stage.require(false, format!("something is {what} while rows are locked, and before"));
            continue;
        };
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let count = times.locked_us.len();
        stage.note(format!("{count} {what} beside locked rows, 99 % within {:.0} ms, and within {:.0} ms before", ms(p99), ms(calm)));
        // A machine that is busy with other things may be slower than the limit without any lock.
        let limit = P99.max(calm * 3 / 2);
        // With fewer answers, the 99th percentile is the slowest one, so a short run only notes it.
        if count >= FEWEST {
            stage.require(p99 < limit, format!("99 % of what nobody locked are {what} within {limit:?}, not {p99:?}"));
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
