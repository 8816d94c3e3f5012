//! Baskets with up to eight items each, and processes that are killed while the items end: each basket is called once, after its last item.

use std::time::{Duration, Instant};

use crate::child::Spec;
use crate::load::{Load, Sends};
use crate::random::Random;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};
use crate::{Failure, sql};

const NODES: usize = 3;
const LIMIT: Duration = Duration::from_secs(3600);

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let (kills, least) = (size.kills(10, 500), i64::try_from(size.transitions(60, 10_000))?);
    let mut test_run = TestRun::open(test_server, "family", kind, size.seed).await?;
    test_run.lease = Duration::from_millis(600);
    for _ in 0..NODES {
        let spec = node(&mut test_run);
        test_run.start(&spec)?;
    }
    let mut random = Random::new(size.seed);
    let (mut killed, mut assembled, mut cancelled, begun) = (0, 0, 0, Instant::now());
    while killed < kills || assembled < least || cancelled == 0 {
        if begun.elapsed() > LIMIT {
            return Err(format!("{killed} kills, {assembled} baskets called and {cancelled} items cancelled within {LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        let index = usize::try_from(random.below(NODES as u64))?;
        test_run.children[index].kill()?;
        let next = node(&mut test_run);
        test_run.replace(index, &next)?;
        killed += 1;
        let mut db = test_run.db().await?;
        (assembled, cancelled) = (db.number(sql::ASSEMBLED).await?, db.number(sql::ITEMS_CANCELLED).await?);
    }
    test_run
        .note(format!("{killed} kills, {assembled} baskets called after their last item, {cancelled} items cancelled with their basket"));
    Ok(test_run.finish().await?.0)
}

fn node(test_run: &mut TestRun<'_>) -> Spec {
    let spec = test_run.spec("node");
    Spec { load: Load { sends: Sends::Baskets, ms: 20, ..spec.load }, ..spec }
}
