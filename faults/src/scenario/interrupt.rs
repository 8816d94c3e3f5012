//! Customers cancel purchases while their charges are retried, and processes are killed meanwhile. Each cancellation is taken: after a charge
//! that succeeded it refunds, and otherwise it ends the retries.

use std::time::Duration;

use crate::child::Spec;
use crate::load::{Load, Sends};
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

const NODES: usize = 3;

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = usize::try_from(size.kills(8, 300))?;
    let mut test_run = TestRun::open(test_server, "interrupt", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut test_run);
        test_run.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    for killed in 0..kills {
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        test_run.children[killed % NODES].kill()?;
        let next = node(&mut test_run);
        test_run.replace(killed % NODES, &next)?;
    }
    // The last process has time to begin.
    test_run.until_transitions(test_run.transitions().await? + 100).await?;
    let interrupted = test_run.db().await?.number(sql::INTERRUPTED).await?;
    test_run.note(format!("{kills} kills, {interrupted} calls were interrupted"));
    test_run.require(interrupted > 0, "calls were interrupted");
    Ok(test_run.finish().await?.0)
}

fn node(test_run: &mut TestRun<'_>) -> Spec {
    let spec = test_run.spec("node");
    Spec { load: Load { sends: Sends::Purchases, ms: 15, ..spec.load }, ..spec }
}
