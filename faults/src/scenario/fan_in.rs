//! Every move is also sent to one of two tills, whose inboxes are soon full. The events wait in the outbox while processes are killed. The
//! checker compares the sums, and the tills compare the order.

use std::time::{Duration, Instant};

use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

const NODES: usize = 3;
/// The limit of each inbox. A lane sends up to six events to its account.
const INBOX: u64 = 12;
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = size.kills(8, 300);
    let mut stage = Stage::open(test_server, "fan-in", kind, size.seed).await?;
    stage.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut stage);
        stage.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    let (mut killed, mut most, begun) = (0, 0, Instant::now());
    while killed < kills || most == 0 {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills, and {most} events in the outbox, within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        most = most.max(stage.db().await?.number(sql::IN_OUTBOX).await?);
        stage.children[usize::try_from(killed)? % NODES].kill()?;
        let next = node(&mut stage);
        stage.replace(usize::try_from(killed)? % NODES, &next)?;
        killed += 1;
    }
    stage.note(format!("{killed} kills, up to {most} events in the outbox"));
    Ok(stage.finish().await?.0)
}

fn node(stage: &mut Stage<'_>) -> Spec {
    let spec = stage.spec("node");
    Spec { inbox: INBOX, load: Load { tills: 2, moves_to_tills: 1, books: 0, ms: 0, ..spec.load }, ..spec }
}
