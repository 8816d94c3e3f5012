//! A disk that becomes full twice: a small filesystem in memory with the whole SQLite database, or with PostgreSQL's tables.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::small_disk::{SmallDisk, current_user_id};
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};

/// The disk counts as full after this time without a transition.
const STILL: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(60);
/// The final size, which suffices for all data.
const ENOUGH_MIB: u32 = 512;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let folder = Folder::new(&format!("disk-{}", kind.word()))?;
    // A new PostgreSQL database has 7 MiB, and one of SQLite begins with its write-ahead log.
    let (first_mib, step_mib) = if kind == Kind::Postgres { (9, 2) } else { (6, 3) };
    let owner = if kind == Kind::Postgres { std::fs::metadata(test_server.socket()?)?.uid() } else { current_user_id()? };
    let disk = SmallDisk::mount(folder.path().join("small"), first_mib, owner)?;
    let url = match kind {
        Kind::Sqlite => format!("sqlite://{}/faults.db", disk.path().display()),
        Kind::Postgres => {
            test_server.run(&format!("create tablespace small location '{}'", disk.path().display())).await?;
            test_server.database("tablespace small").await?
        }
    };
    let name = url.rsplit('/').next().unwrap_or_default().to_owned();
    let fills = u32::try_from(size.kills(1, 10))?;
    let filled = fill(test_server, kind, size, (folder, url), &disk, (first_mib, step_mib, fills)).await;
    if kind == Kind::Postgres {
        test_server.run(&format!("drop database {name} with (force)")).await?;
        test_server.run("drop tablespace small").await?;
    }
    filled
}

async fn fill(
    test_server: &mut TestServer,
    kind: Kind,
    size: Size,
    (folder, url): (Folder, String),
    disk: &SmallDisk,
    (first_mib, step_mib, fills): (u32, u32, u32),
) -> Result<Report, Failure> {
    let mut test_run = TestRun::at(test_server, kind, size.seed, folder, url).await?;
    test_run.lease = Duration::from_secs(30);
    for _ in 0..2 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: Load { callers: 32, ..spec.load }, ..spec })?;
    }
    for n in 1..=fills {
        let at = until_full(&test_run).await?;
        test_run.note(format!("full at {at} transitions"));
        disk.resize(if n == fills { ENOUGH_MIB } else { first_mib + n * step_mib })?;
        test_run.until_transitions(at + 50).await?;
    }
    let said = test_run.output_lines_with("full")? + test_run.output_lines_with("No space left")?;
    test_run.require(said > 0, "the processes got the error that the disk is full");
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "verbs that had ended were reported once there was room, and nothing is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error for want of room");
    Ok(report)
}

/// Waits until nothing more is committed. Returns the number of transitions.
async fn until_full(test_run: &TestRun<'_>) -> Result<i64, Failure> {
    let limit = Instant::now() + LIMIT;
    let (mut done, mut since) = (test_run.transitions().await?, Instant::now());
    while since.elapsed() < STILL || done == 0 {
        if Instant::now() > limit {
            return Err(format!("the disk is not full within {LIMIT:?}: {done} transitions").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = test_run.transitions().await?;
        if now > done {
            (done, since) = (now, Instant::now());
        }
    }
    Ok(done)
}
