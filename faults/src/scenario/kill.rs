//! Worker processes that also send are killed by SIGKILL repeatedly, at any point, and replaced by new ones.

use std::time::{Duration, Instant};

use super::Size;
use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

/// The number of processes that work and send at the same time. One more only sends.
const NODES: usize = 3;
/// The time limit of the scenario.
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let (kills, transitions) = (size.kills(20, 1000), i64::try_from(size.transitions(1000, 200_000))?);
    let mut stage = Stage::open(test_server, "kill", kind, size.seed).await?;
    stage.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut stage);
        stage.start(&spec)?;
    }
    let sender = lively(stage.sender());
    stage.start(&sender)?;

    let mut random = Random::new(size.seed);
    let (mut killed, mut done, begun) = (0, 0, Instant::now());
    while killed < kills || done < transitions {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills and {done} transitions within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50 + random.below(300))).await;
        let place = usize::try_from(random.below(NODES as u64 * 4 + 1))? / 4;
        stage.children[place].kill()?;
        killed += 1;
        let next = if place < NODES { node(&mut stage) } else { lively(stage.sender()) };
        stage.replace(place, &next)?;
        if killed % 10 == 0 {
            done = stage.transitions().await?;
        }
    }
    stage.note(format!("{killed} kills while {done} transitions committed"));
    let (report, _) = stage.finish().await?;
    Ok(report)
}

fn node(stage: &mut Stage<'_>) -> Spec {
    lively(stage.spec("node"))
}

fn lively(spec: Spec) -> Spec {
    Spec { load: Load { lanes: 24, ..spec.load }, ..spec }
}
