//! A process is stopped by SIGSTOP for longer than its lease, and continued. Its attempts were lost and run elsewhere, and its late reports
//! change nothing.

use std::time::Duration;

use crate::Failure;
use crate::load::Load;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};
use crate::{child::Spec, sql};

const NODES: usize = 3;
/// The factor by which the number of stops may grow until one of them leads to a late report.
const MOST: usize = 5;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let rounds = usize::try_from(size.kills(2, 60))?;
    let mut stage = Stage::open(test_server, "stop", kind, size.seed).await?;
    stage.lease = Duration::from_millis(700);
    for _ in 0..NODES {
        let spec = stage.spec("node");
        // The verbs take up to 60 ms, so that each stop finds running ones.
        stage.start(&Spec { load: Load { lanes: 16, ms: 60, ..spec.load }, ..spec })?;
    }
    stage.until_transitions(100).await?;
    let (mut stops, mut late) = (0, 0);
    // A process that is stopped while it holds SQLite's write lock stops all others too, and no attempt is lost.
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
