//! High concurrency: four processes with eight threads on one database, and processes with one connection whose futures are dropped.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// Four processes with eight threads each. No caller gets the error that the database is locked.
pub async fn crowd(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "crowd", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(10);
    for _ in 0..4 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { threads: 8, load: Load { callers: 32, ..spec.load }, ..spec })?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 120))).await;
    let locked = test_run.output_lines_with("locked")? + test_run.output_lines_with("busy")?;
    test_run.require(locked == 0, format!("no process got the error that the database is locked, but {locked} times"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nobody's lease ran out");
    Ok(report)
}

/// A pool of one connection. `send`, `settled` and `get` are dropped after at most four milliseconds, at any point.
pub async fn dropped(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "drop", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(10);
    for _ in 0..2 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { connections: 1, load: Load { drops: true, ..spec.load }, ..spec })?;
    }
    test_run.until_transitions(50).await?;
    tokio::time::sleep(Duration::from_secs(size.seconds(4, 120))).await;
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost");
    report.require(report.transitions > 100, "work goes on");
    Ok(report)
}
