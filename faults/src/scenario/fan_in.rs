//! Every move is also sent to one of two tills, whose inboxes are soon full. The events wait in the outbox while processes are killed. The
//! checker compares the sums, and the tills compare the order.

use std::time::{Duration, Instant};

use crate::child::Spec;
use crate::load::Load;
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

const NODES: usize = 3;
/// The limit of each inbox. A caller sends up to six events to its account.
const INBOX: u64 = 12;
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let kills = size.kills(8, 300);
    let mut test_run = TestRun::open(test_server, "fan-in", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut test_run);
        test_run.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    let (mut killed, mut most, begun) = (0, 0, Instant::now());
    while killed < kills || most == 0 {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills, and {most} events in the outbox, within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        most = most.max(test_run.db().await?.number(sql::IN_OUTBOX).await?);
        test_run.children[usize::try_from(killed)? % NODES].kill()?;
        let next = node(&mut test_run);
        test_run.replace(usize::try_from(killed)? % NODES, &next)?;
        killed += 1;
    }
    test_run.note(format!("{killed} kills, up to {most} events in the outbox"));
    Ok(test_run.finish().await?.0)
}

fn node(test_run: &mut TestRun<'_>) -> Spec {
    let spec = test_run.spec("node");
    Spec { inbox: INBOX, load: Load { tills: 2, moves_to_tills: 1, books: 0, ms: 0, ..spec.load }, ..spec }
}
