//! SIGSTOP past the lease, and SIGCONT: what the process executed was taken over, and its late reports change nothing.

use std::time::Duration;

use super::Size;
use crate::Failure;
use crate::load::Load;
use crate::report::Report;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};
use crate::{child::Spec, sql};

const NODES: usize = 3;
/// So many times as many stops are tried until one of them is followed by a late report.
const MOST: usize = 5;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let rounds = usize::try_from(size.kills(2, 60))?;
    let mut stage = Stage::open(test_server, "stop", kind, size.seed).await?;
    stage.lease = Duration::from_millis(700);
    for _ in 0..NODES {
        let spec = stage.spec("node");
        // Verbs that take a while, so that each stop finds some that execute.
        stage.start(&Spec { load: Load { lanes: 16, ms: 60, ..spec.load }, ..spec })?;
    }
    stage.until_transitions(100).await?;
    let (mut stops, mut late) = (0, 0);
    // One that stands still with SQLite's only writer in its hands keeps all others still, and nobody takes anything over.
    while stops < rounds || (late == 0 && stops < MOST * rounds) {
        let place = stops % NODES;
        stage.children[place].stop()?;
        tokio::time::sleep(3 * stage.lease).await;
        stage.children[place].go_on()?;
        tokio::time::sleep(2 * stage.lease).await;
        late = stage.db().await?.number(sql::LATE).await?;
        stops += 1;
    }
    stage.note(format!("{stops} stops, {late} late reports"));
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") > 0, "what executed was taken over");
    report.require(late > 0, "what was taken over was reported late");
    Ok(report)
}
