//! Outages of the server: crashes under load, and an outage that is longer than any lease.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// The server is stopped with `immediate`, as in a crash, and started again. All acknowledged events must be present.
pub async fn crash(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let crashes = size.kills(3, 40);
    let mut test_run = TestRun::open(test_server, "crash", kind, size.seed).await?;
    begin(&mut test_run, Load::default()).await?;
    for _ in 0..crashes {
        tokio::time::sleep(Duration::from_millis(900)).await;
        tokio::task::block_in_place(|| test_run.test_server.cluster()?.stop().map_err(Failure::from))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| test_run.test_server.cluster()?.start().map_err(Failure::from))?;
        let before = test_run.transitions().await?;
        test_run.until_transitions(before + 50).await?;
    }
    test_run.note(format!("{crashes} crashes of the server"));
    Ok(test_run.finish().await?.0)
}

/// The server is down for three leases while verbs run for longer than that. Their workers live, and no other process may treat their
/// attempts as lost.
pub async fn outage(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let outages = size.kills(1, 10);
    let mut test_run = TestRun::open(test_server, "outage", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(1500);
    begin(&mut test_run, Load { ms: 6000, wagers: 2, moves: 0, ..Load::default() }).await?;
    for _ in 0..outages {
        tokio::task::block_in_place(|| test_run.test_server.cluster()?.stop().map_err(Failure::from))?;
        tokio::time::sleep(3 * test_run.lease).await;
        tokio::task::block_in_place(|| test_run.test_server.cluster()?.start().map_err(Failure::from))?;
        let before = test_run.transitions().await?;
        test_run.until_transitions(before + 20).await?;
        tokio::time::sleep(2 * test_run.lease).await;
    }
    test_run.note(format!("{outages} outages of three leases"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "no attempt of a live worker is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error");
    Ok(report)
}

async fn begin(test_run: &mut TestRun<'_>, load: Load) -> Result<(), Failure> {
    for _ in 0..3 {
        let spec = test_run.spec("node");
        test_run.start(&Spec { load: load.clone(), ..spec })?;
    }
    let sender = test_run.sender();
    test_run.start(&Spec { load, ..sender })?;
    test_run.until_transitions(30).await
}
