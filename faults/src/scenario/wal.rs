//! A whole PostgreSQL cluster on a small filesystem, with its write-ahead log. When that is full, nothing can be committed, and the server
//! stops until there is space.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection};

use super::Size;
use crate::Failure;
use crate::child::Spec;
use crate::ground::{Folder, Ground, Kind};
use crate::load::Load;
use crate::report::Report;
use crate::small::{Small, command};
use crate::stage::Stage;

/// The free space that is left each time. It suffices for tables, but not for another log segment of 16 MiB.
const LEFT_MIB: u32 = 6;
/// The size with which work continues until the next reduction.
const ENOUGH_MIB: u32 = 512;
/// The limit for the log to become full, and for the server then to stop or to recover.
const LIMIT: Duration = Duration::from_secs(20);
/// Fills the log faster than the load does, without writing to a table.
const BALLAST: &str = "select pg_logical_emit_message(false, 'ballast', repeat('x', 262144))";

pub async fn run(_: &mut Ground, kind: Kind, size: Size) -> Result<Report, Failure> {
    let fills = size.kills(2, 20);
    let mut folder = Folder::new("wal-disk")?;
    folder.is_kept = false;
    // The variables are dropped in reverse order: the server before its disk.
    let disk;
    let mut ground = Ground::default();
    disk = lie_small(&mut ground, folder.path())?;
    let mut stage = Stage::open(&mut ground, "wal", kind, size.seed).await?;
    stage.lease = Duration::from_secs(30);
    for _ in 0..2 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: Load { lanes: 32, ..spec.load }, ..spec })?;
    }
    let mut stops = 0;
    for _ in 0..fills {
        let before = stage.transitions().await?;
        stage.until_transitions(before + 100).await?;
        disk.resize(disk.used_mib()? + LEFT_MIB)?;
        fill(stage.ground).await?;
        stops += u64::from(has_stopped(stage.ground).await?);
        disk.resize(disk.used_mib()? + ENOUGH_MIB)?;
        start(stage.ground)?;
    }
    let before = stage.transitions().await?;
    stage.until_transitions(before + 100).await?;
    let log = stage.ground.log()?;
    let said = log.lines().filter(|line| line.contains("PANIC") && line.contains("No space left")).count();
    stage.note(format!("full {fills} times, {said} times no room for the log, {stops} times the server stopped"));
    stage.require(said > 0 && stops > 0, "the server stopped for want of room");
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") == 0, "what had ended was told once there was room, and nothing is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error for want of room");
    Ok(report)
}

/// Moves the data of the cluster to a small filesystem.
fn lie_small(ground: &mut Ground, folder: &Path) -> Result<Small, Failure> {
    let data = ground.socket()?.with_file_name("data");
    let disk = Small::mount(folder.join("small"), ENOUGH_MIB, std::fs::metadata(&data)?.uid())?;
    tokio::task::block_in_place(|| ground.cluster()?.stop().map_err(Failure::from))?;
    command("cp", &["-a", "-T", &data.to_string_lossy()], disk.path())?;
    std::fs::remove_dir_all(&data)?;
    symlink(disk.path(), &data)?;
    start(ground)?;
    Ok(disk)
}

fn start(ground: &mut Ground) -> Result<(), Failure> {
    tokio::task::block_in_place(|| ground.cluster()?.start().map_err(Failure::from))
}

/// Writes to the log until a write fails.
async fn fill(ground: &mut Ground) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(&ground.cluster()?.url()).await?;
    let begun = Instant::now();
    while connection.execute(BALLAST).await.is_ok() {
        if begun.elapsed() > LIMIT {
            return Err(format!("the log is not full within {LIMIT:?}").into());
        }
    }
    Ok(())
}

/// Returns true if the server stopped because its log was full, and false if it recovered by itself.
async fn has_stopped(ground: &mut Ground) -> Result<bool, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if ground.cluster()?.has_stopped() {
            return Ok(true);
        }
        if ground.run("select 1").await.is_ok() {
            return Ok(false);
        }
    }
    Err(format!("the server is neither gone nor back within {LIMIT:?}").into())
}
