//! Customers cancel purchases while their charges are retried, and processes are killed meanwhile. Each cancellation is taken: after a charge
//! that succeeded it refunds, and otherwise it ends the retries.

use std::time::Duration;

use crate::child::Spec;
use crate::load::{Load, Sends};
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

const NODES: usize = 3;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = usize::try_from(size.kills(8, 300))?;
    let mut stage = Stage::open(test_server, "interrupt", kind, size.seed).await?;
    stage.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut stage);
        stage.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    for killed in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        stage.children[killed % NODES].kill()?;
        let next = node(&mut stage);
        stage.replace(killed % NODES, &next)?;
    }
    // The last process has time to begin.
    stage.until_transitions(stage.transitions().await? + 100).await?;
    let interrupted = stage.db().await?.number(sql::INTERRUPTED).await?;
    stage.note(format!("{kills} kills, {interrupted} calls were interrupted"));
    stage.require(interrupted > 0, "calls were interrupted");
    Ok(stage.finish().await?.0)
}

fn node(stage: &mut Stage<'_>) -> Spec {
    let spec = stage.spec("node");
    Spec { load: Load { sends: Sends::Purchases, ms: 15, ..spec.load }, ..spec }
}
