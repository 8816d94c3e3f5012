//! SIGSTOP past the lease, and SIGCONT: what the process executed was taken over, and its late reports change nothing.

use std::time::Duration;

use super::Size;
use crate::Failure;
use crate::ground::{Ground, Kind};
use crate::load::Load;
use crate::report::Report;
use crate::stage::Stage;
use crate::{child::Spec, sql};

const NODES: usize = 3;

pub async fn run(ground: &mut Ground, kind: Kind, size: Size) -> Result<Report, Failure> {
    let rounds = usize::try_from(size.kills(2, 60))?;
    let mut stage = Stage::open(ground, "stop", kind, size.seed).await?;
    stage.lease = Duration::from_millis(700);
    for _ in 0..NODES {
        let spec = stage.spec("node");
        // Verbs that take a while, so that each stop finds some that execute.
        stage.start(&Spec { load: Load { lanes: 16, ms: 60, ..spec.load }, ..spec })?;
    }
    stage.until_transitions(100).await?;
    for round in 0..rounds {
        let place = round % NODES;
        stage.children[place].stop()?;
        tokio::time::sleep(3 * stage.lease).await;
        stage.children[place].go_on()?;
        tokio::time::sleep(2 * stage.lease).await;
    }
    let late = stage.db().await?.number(sql::LATE).await?;
    stage.note(format!("{rounds} stops, {late} late reports"));
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") >= rounds, "each stop lost what executed");
    report.require(late > 0, "what was taken over was reported late");
    Ok(report)
}
