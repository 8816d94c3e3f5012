//! Random kills, stops, outages and temporary conditions for any length of time. At the end all instances settle, the checker finds
//! nothing, and the memory of processes that were never killed has not grown.

use std::time::{Duration, Instant};

use super::conditions::{file, server, wait_for_progress};
use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::small_disk::{SmallDisk, current_user_id};
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};

/// The first two processes, one worker and one sender, run to the end. Their memory is measured.
const STEADY: usize = 2;
const PROCESSES: usize = 4;
const LEASE: Duration = Duration::from_secs(3);
/// The attempts of a stopped process become due at the end of its lease and the next poll.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// The minimum interval between two measurements of memory.
const SAMPLE: Duration = Duration::from_secs(1);
/// The permitted growth of a process's memory in KiB, for caches and the allocator.
const VARIES_KIB: u64 = 12 << 10;

/// The memory of a process that runs to the end.
#[derive(Default)]
struct Memory {
    samples_kib: Vec<u64>,
}

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    match kind {
        Kind::Postgres => {
            let test_run = TestRun::open(test_server, "soak", kind, size.seed).await?;
            soak(test_run, None, size).await
        }
        Kind::Sqlite => {
            let folder = Folder::new("soak-sqlite")?;
            let disk = SmallDisk::mount(folder.path().join("small"), file::DISK_MIB, current_user_id()?)?;
            let url = format!("sqlite://{}/faults.db", disk.path().display());
            let mut test_run = TestRun::at(test_server, kind, size.seed, folder, url).await?;
            test_run.prefix = file::prefix()?;
            soak(test_run, Some(disk), size).await
        }
    }
}

async fn soak(mut test_run: TestRun<'_>, disk: Option<SmallDisk>, size: Size) -> Result<Report, Failure> {
    let lasts = Duration::from_secs(size.minutes.unwrap_or(60) * 60);
    test_run.lease = LEASE;
    test_run.settle_within = SETTLE_LIMIT;
    for index in 0..PROCESSES {
        let spec = process(&mut test_run, index, lasts);
        test_run.start(&spec)?;
    }
    wait_for_progress(&mut test_run, "the start").await?;
    let faults = faults(disk.is_some());
    let mut random = Random::new(size.seed);
    let mut memory: [Memory; STEADY] = Default::default();
    let (begun, mut sampled, mut said, mut performed) = (Instant::now(), Instant::now(), 0, 0);
    while begun.elapsed() < lasts {
        let name = faults[usize::try_from(random.below(faults.len() as u64))?];
        inject(&mut test_run, disk.as_ref(), name, &mut random, lasts).await?;
        performed += 1;
        wait_for_progress(&mut test_run, name).await?;
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            for (child, memory) in test_run.children.iter().zip(&mut memory) {
                memory.samples_kib.push(child.resident_kib()?);
            }
        }
        let minutes = begun.elapsed().as_secs() / 60;
        if minutes > said || said == 0 {
            said = minutes.max(1);
            let now: Vec<String> = memory.iter().filter_map(|one| Some(format!("{} MiB", one.samples_kib.last()? >> 10))).collect();
            println!(
                "    minute {minutes}: {performed} faults, {} transitions, resident: {}",
                test_run.transitions().await?,
                now.join(", ")
            );
        }
    }
    test_run.note(format!("{performed} faults"));
    for (index, memory) in memory.iter().enumerate() {
        memory.judge(&mut test_run, index);
    }
    let (report, _) = test_run.finish().await?;
    drop(disk);
    Ok(report)
}

/// The names of the faults among which one is chosen. Each fault of a process is as likely as two conditions.
fn faults(is_sqlite: bool) -> Vec<&'static str> {
    let of_processes: &[&str] = if is_sqlite { &["kill", "stop"] } else { &["kill", "stop", "outage"] };
    let conditions: &[&str] = if is_sqlite { &file::NAMES } else { &server::NAMES };
    of_processes.iter().flat_map(|name| [*name; 2]).chain(conditions.iter().copied()).collect()
}

/// Injects the fault of this name. Stops, outages and conditions are over when this returns.
async fn inject(
    test_run: &mut TestRun<'_>,
    disk: Option<&SmallDisk>,
    name: &str,
    random: &mut Random,
    lasts: Duration,
) -> Result<(), Failure> {
    let each = Duration::from_millis(300 + random.below(3000));
    match (name, disk) {
        ("kill", _) => {
            let index = STEADY + usize::try_from(random.below((PROCESSES - STEADY) as u64))?;
            test_run.children[index].kill()?;
            let next = process(test_run, index, lasts);
            test_run.replace(index, &next)
        }
        ("stop", _) => {
            let index = usize::try_from(random.below(PROCESSES as u64))?;
            test_run.children[index].stop()?;
            tokio::time::sleep(2 * each).await;
            test_run.children[index].go_on()
        }
        ("outage", _) => {
            tokio::task::block_in_place(|| test_run.test_server.cluster()?.stop().map_err(Failure::from))?;
            tokio::time::sleep(2 * each).await;
            tokio::task::block_in_place(|| test_run.test_server.cluster()?.start().map_err(Failure::from))
        }
        (name, Some(disk)) => file::impose(test_run, disk, name, each).await,
        (name, None) => server::impose(test_run, name, each).await.map(drop),
    }
}

/// The settings of the process with this number. Long runs send more slowly, because the checker compares everything in memory.
fn process(test_run: &mut TestRun<'_>, index: usize, lasts: Duration) -> Spec {
    let spec = if index == 1 { test_run.sender() } else { test_run.spec("node") };
    let pause_ms = if lasts > Duration::from_secs(300) { 1000 } else { 150 };
    Spec { load: Load { callers: 8, tills: 4, pause_ms, ..spec.load }, ..spec }
}

impl Memory {
    /// Requires that the median of the last quarter is about that of the second one. Caches fill during the first quarter.
    fn judge(&self, test_run: &mut TestRun<'_>, index: usize) {
        let quarter = self.samples_kib.len() / 4;
        let median = |samples: &[u64]| {
            let mut sorted = samples.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or(0)
        };
        let (second, last) = (median(&self.samples_kib[quarter..2 * quarter]), median(&self.samples_kib[3 * quarter..]));
        let name = test_run.children[index].name.clone();
        test_run.note(format!("{name}: {} MiB resident in the second quarter, {} in the last", second >> 10, last >> 10));
        test_run.require(
            quarter > 0 && last <= second + second / 10 + VARIES_KIB,
            format!("the memory of {name} is flat, not {second} KiB and then {last} KiB"),
        );
    }
}
