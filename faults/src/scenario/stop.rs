//! A process is stopped by SIGSTOP for longer than its lease, and continued. Its attempts were lost and run elsewhere, and its late reports
//! change nothing.

use std::time::Duration;

use crate::Failure;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{child::Spec, sql};

const NODES: usize = 3;
/// The factor by which the number of stops may grow until one of them leads to a late report.
const MAX_FACTOR: usize = 5;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let rounds = usize::try_from(size.kills(2, 60))?;
    let mut test_run = TestRun::open(test_server, "stop", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(700);
    for _ in 0..NODES {
        let spec = test_run.spec("node");
        // The verbs take up to 60 ms, so that each stop finds running ones.
        test_run.start(&Spec { load: Load { callers: 16, ms: 60, ..spec.load }, ..spec })?;
    }
    test_run.until_transitions(100).await?;
    let (mut stops, mut late) = (0, 0);
    // A process that is stopped while it holds SQLite's write lock stops all others too, and no attempt is lost.
    while stops < rounds || (late == 0 && stops < MAX_FACTOR * rounds) {
        let index = stops % NODES;
        test_run.children[index].stop()?;
        tokio::time::sleep(3 * test_run.lease).await;
        test_run.children[index].go_on()?;
        tokio::time::sleep(2 * test_run.lease).await;
        late = test_run.db().await?.number(sql::LATE).await?;
        stops += 1;
    }
    test_run.note(format!("{stops} stops, {late} late reports"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") > 0, "what executed was taken over");
    report.require(late > 0, "what was taken over was reported late");
    Ok(report)
}
