//! Random kills, stops, outages and temporary conditions for any length of time. At the end all instances settle, the checker finds
//! nothing, and the memory of processes that were never killed has not grown.

use std::time::{Duration, Instant};

use super::conditions::{file, resume, server};
use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::small::{Small, me};
use crate::stage::Stage;
use crate::test_server::{Folder, Kind, TestServer};

/// The first two processes, one worker and one sender, run to the end. Their memory is measured.
const STEADY: usize = 2;
const PROCESSES: usize = 4;
const LEASE: Duration = Duration::from_secs(3);
/// The attempts of a stopped process become due at the end of its lease and the next poll.
const REST: Duration = Duration::from_secs(60);
/// The minimum interval between two measurements of memory.
const SAMPLE: Duration = Duration::from_secs(1);
/// The permitted growth of a process's memory in KiB, for caches and the allocator.
const VARIES_KIB: u64 = 12 << 10;
const DISK_MIB: u32 = 4096;

/// The memory of a process that runs to the end.
#[derive(Default)]
struct Memory {
    samples_kib: Vec<u64>,
}

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    match kind {
        Kind::Postgres => {
            let stage = Stage::open(test_server, "soak", kind, size.seed).await?;
            soak(stage, None, size).await
        }
        Kind::Sqlite => {
            let folder = Folder::new("soak-sqlite")?;
            let disk = Small::mount(folder.path().join("small"), DISK_MIB, me()?)?;
            let url = format!("sqlite://{}/faults.db", disk.path().display());
            let mut stage = Stage::at(test_server, kind, size.seed, folder, url).await?;
            stage.prefix = file::prefix()?;
            soak(stage, Some(disk), size).await
        }
    }
}

async fn soak(mut stage: Stage<'_>, disk: Option<Small>, size: Size) -> Result<Report, Failure> {
    let lasts = Duration::from_secs(size.minutes.unwrap_or(60) * 60);
    stage.lease = LEASE;
    stage.rest_within = REST;
    for place in 0..PROCESSES {
        let spec = process(&mut stage, place, lasts);
        stage.start(&spec)?;
    }
    resume(&mut stage, "the start").await?;
    let conditions = if disk.is_some() { file::NAMES.as_slice() } else { server::NAMES.as_slice() };
    let acts: Vec<&'static str> = ["kill", "stop", "outage"].into_iter().filter(|act| disk.is_none() || *act != "outage").collect();
    let mut random = Random::new(size.seed);
    let mut memory: [Memory; STEADY] = Default::default();
    let (begun, mut sampled, mut said, mut performed) = (Instant::now(), Instant::now(), 0, 0);
    while begun.elapsed() < lasts {
        let choice = usize::try_from(random.below((2 * acts.len() + conditions.len()) as u64))?;
        let name = if choice < 2 * acts.len() { acts[choice / 2] } else { conditions[choice - 2 * acts.len()] };
        let each = Duration::from_millis(300 + random.below(3000));
        match (name, &disk) {
            ("kill", _) => {
                let place = STEADY + usize::try_from(random.below((PROCESSES - STEADY) as u64))?;
                stage.children[place].kill()?;
                let next = process(&mut stage, place, lasts);
                stage.replace(place, &next)?;
            }
            ("stop", _) => {
                let place = usize::try_from(random.below(PROCESSES as u64))?;
                stage.children[place].stop()?;
                tokio::time::sleep(2 * each).await;
                stage.children[place].go_on()?;
            }
            ("outage", _) => {
                tokio::task::block_in_place(|| stage.test_server.cluster()?.stop().map_err(Failure::from))?;
                tokio::time::sleep(2 * each).await;
                tokio::task::block_in_place(|| stage.test_server.cluster()?.start().map_err(Failure::from))?;
            }
            (name, Some(disk)) => file::impose(&stage, disk, name, each).await?,
            (name, None) => server::impose(&mut stage, name, each).await.map(drop)?,
        }
        performed += 1;
        resume(&mut stage, name).await?;
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            for (child, memory) in stage.children.iter().zip(&mut memory) {
                memory.samples_kib.push(child.resident_kib()?);
            }
        }
        let minutes = begun.elapsed().as_secs() / 60;
        if minutes > said || said == 0 {
            said = minutes.max(1);
            let now: Vec<String> = memory.iter().filter_map(|one| Some(format!("{} MiB", one.samples_kib.last()? >> 10))).collect();
            println!("    minute {minutes}: {performed} faults, {} transitions, resident: {}", stage.transitions().await?, now.join(", "));
        }
    }
    stage.note(format!("{performed} faults"));
    for (place, memory) in memory.iter().enumerate() {
        memory.judge(&mut stage, place);
    }
    let (report, _) = stage.finish().await?;
    drop(disk);
    Ok(report)
}

/// The settings of the process with this number. Long runs send more slowly, because the checker compares everything in memory.
fn process(stage: &mut Stage<'_>, place: usize, lasts: Duration) -> Spec {
    let spec = if place == 1 { stage.sender() } else { stage.spec("node") };
    let pause_ms = if lasts > Duration::from_secs(300) { 1000 } else { 150 };
    Spec { load: Load { lanes: 8, tills: 4, pause_ms, ..spec.load }, ..spec }
}

impl Memory {
    /// Requires that the median of the last quarter is about that of the second one. Caches fill during the first quarter.
    fn judge(&self, stage: &mut Stage<'_>, place: usize) {
        let quarter = self.samples_kib.len() / 4;
        let median = |samples: &[u64]| {
            let mut sorted = samples.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or(0)
        };
        let (second, last) = (median(&self.samples_kib[quarter..2 * quarter]), median(&self.samples_kib[3 * quarter..]));
        let name = stage.children[place].name.clone();
        stage.note(format!("{name}: {} MiB resident in the second quarter, {} in the last", second >> 10, last >> 10));
        stage.require(
            quarter > 0 && last <= second + second / 10 + VARIES_KIB,
            format!("the memory of {name} is flat, not {second} KiB and then {last} KiB"),
        );
    }
}
