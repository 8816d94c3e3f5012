//! A whole PostgreSQL cluster on a small filesystem, with its write-ahead log. When that is full, nothing can be committed, and the server
//! stops until there is space.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection};

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::small_disk::{SmallDisk, run_as_root};
use crate::test_run::TestRun;
use crate::test_server::{Folder, Kind, TestServer};

/// The free space that is left each time. It suffices for tables, but not for another log segment of 16 MiB.
const LEFT_MIB: u32 = 6;
/// The size with which work continues until the next reduction.
const ENOUGH_MIB: u32 = 512;
/// The limit for the log to become full, and for the server then to stop or to recover.
const LIMIT: Duration = Duration::from_secs(20);
/// Fills the log faster than the load does, without writing to a table.
const BALLAST: &str = "select pg_logical_emit_message(false, 'ballast', repeat('x', 262144))";

pub async fn run(_: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let fills = size.kills(2, 20);
    let mut folder = Folder::new("wal-disk")?;
    folder.is_kept = false;
    // The variables are dropped in reverse order: the server before its disk.
    let disk;
    let mut test_server = TestServer::default();
    disk = move_to_small_disk(&mut test_server, folder.path())?;
    let mut test_run = TestRun::open(&mut test_server, "wal", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(30);
    for _ in 0..2 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: Load { callers: 32, ..spec.load }, ..spec })?;
    }
    let mut stops = 0;
    for _ in 0..fills {
        let before = test_run.transitions().await?;
        test_run.until_transitions(before + 100).await?;
        disk.resize(disk.used_mib()? + LEFT_MIB)?;
        fill(test_run.test_server).await?;
        stops += u64::from(has_stopped(test_run.test_server).await?);
        disk.resize(disk.used_mib()? + ENOUGH_MIB)?;
        start(test_run.test_server)?;
    }
    let before = test_run.transitions().await?;
    test_run.until_transitions(before + 100).await?;
    let log = test_run.test_server.log()?;
    let said = log.lines().filter(|line| line.contains("PANIC") && line.contains("No space left")).count();
    test_run.note(format!("full {fills} times, {said} times no room for the log, {stops} times the server stopped"));
    test_run.require(said > 0 && stops > 0, "the server stopped for want of room");
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "verbs that had ended were reported once there was room, and nothing is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error for want of room");
    Ok(report)
}

/// Moves the data of the cluster to a small filesystem.
fn move_to_small_disk(test_server: &mut TestServer, folder: &Path) -> Result<SmallDisk, Failure> {
    let data = test_server.socket()?.with_file_name("data");
    let disk = SmallDisk::mount(folder.join("small"), ENOUGH_MIB, std::fs::metadata(&data)?.uid())?;
    tokio::task::block_in_place(|| test_server.cluster()?.stop().map_err(Failure::from))?;
    run_as_root("cp", &["-a", "-T", &data.to_string_lossy()], disk.path())?;
    std::fs::remove_dir_all(&data)?;
    symlink(disk.path(), &data)?;
    start(test_server)?;
    Ok(disk)
}

fn start(test_server: &mut TestServer) -> Result<(), Failure> {
    tokio::task::block_in_place(|| test_server.cluster()?.start().map_err(Failure::from))
}

/// Writes to the log until a write fails.
async fn fill(test_server: &mut TestServer) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(&test_server.cluster()?.url()).await?;
    let begun = Instant::now();
    while connection.execute(BALLAST).await.is_ok() {
        if begun.elapsed() > LIMIT {
            return Err(format!("the log is not full within {LIMIT:?}").into());
        }
    }
    Ok(())
}

/// Returns true if the server stopped because its log was full, and false if it recovered by itself.
async fn has_stopped(test_server: &mut TestServer) -> Result<bool, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if test_server.cluster()?.has_stopped() {
            return Ok(true);
        }
        if test_server.run("select 1").await.is_ok() {
            return Ok(false);
        }
    }
    Err(format!("the server is neither gone nor back within {LIMIT:?}").into())
}
