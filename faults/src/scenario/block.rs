//! A verb blocks all threads of its process for five leases. The lease is renewed nevertheless.

use std::time::Duration;

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let stalls = size.kills(1, 40);
    let mut test_run = TestRun::open(test_server, "block", kind, size.seed).await?;
    let five_leases_ms = u64::try_from((5 * test_run.lease).as_millis())?;
    // All async code runs on one thread, which the verb blocks. Another process sweeps lost attempts.
    let blocked = test_run.spec("blocked");
    let load = Load { callers: 2, moves: 2, stalls: Some((2, five_leases_ms)), wagers: 0, ..Load::default() };
    test_run.start(&Spec { threads: 1, load, ..blocked })?;
    let sweeper = test_run.worker();
    test_run.start(&Spec { concurrency: 1, ..sweeper })?;
    let limit = std::time::Instant::now() + Duration::from_secs(60 + stalls * 20);
    while test_run.stalled().await? < i64::try_from(stalls)? {
        if std::time::Instant::now() > limit {
            return Err("there were not as many stalls in time".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    test_run.note(format!("{stalls} times five leases without a free thread"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost");
    Ok(report)
}
