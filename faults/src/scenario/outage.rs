//! Outages of the server: crashes under load, and an outage that is longer than any lease.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

/// The server is stopped with `immediate`, as in a crash, and started again. All acknowledged events must be present.
pub async fn crash(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let crashes = size.kills(3, 40);
    let mut stage = Stage::open(test_server, "crash", kind, size.seed).await?;
    begin(&mut stage, Load::default()).await?;
    for _ in 0..crashes {
        tokio::time::sleep(Duration::from_millis(900)).await;
        tokio::task::block_in_place(|| stage.test_server.cluster()?.stop().map_err(Failure::from))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| stage.test_server.cluster()?.start().map_err(Failure::from))?;
        let before = stage.transitions().await?;
        stage.until_transitions(before + 50).await?;
    }
    stage.note(format!("{crashes} crashes of the server"));
    Ok(stage.finish().await?.0)
}

/// The server is down for three leases while verbs run for longer than that. Their workers live, and no other process may treat their
/// attempts as lost.
pub async fn outage(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let outages = size.kills(1, 10);
    let mut stage = Stage::open(test_server, "outage", kind, size.seed).await?;
    stage.lease = Duration::from_millis(1500);
    begin(&mut stage, Load { ms: 6000, wagers: 2, moves: 0, ..Load::default() }).await?;
    for _ in 0..outages {
        tokio::task::block_in_place(|| stage.test_server.cluster()?.stop().map_err(Failure::from))?;
        tokio::time::sleep(3 * stage.lease).await;
        tokio::task::block_in_place(|| stage.test_server.cluster()?.start().map_err(Failure::from))?;
        let before = stage.transitions().await?;
        stage.until_transitions(before + 20).await?;
        tokio::time::sleep(2 * stage.lease).await;
    }
    stage.note(format!("{outages} outages of three leases"));
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") == 0, "no attempt of a live worker is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error");
    Ok(report)
}

async fn begin(stage: &mut Stage<'_>, load: Load) -> Result<(), Failure> {
    for _ in 0..3 {
        let spec = stage.spec("node");
        stage.start(&Spec { load: load.clone(), ..spec })?;
    }
    let sender = stage.sender();
    stage.start(&Spec { load, ..sender })?;
    stage.until_transitions(30).await
}
