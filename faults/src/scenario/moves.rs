//! Partitions move between two servers under load. The mover ends after a step or within one, and another one continues the move or cancels it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fsm_runtime::admin::Opening;
use fsm_runtime::admin::partition_move::{self, Step};
use fsm_runtime::admin::partitions;

use crate::Failure;
use crate::random::Random;
use crate::report::Report;
use crate::servers::{PARTITIONS, Servers};
use crate::size::Size;
use crate::test_server::{Kind, TestServer};

/// The time limit for a move to be continued or cancelled.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause after an error of a move.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// The minimum number of transitions in the partition after a move.
const AFTERWARDS: i64 = 10;

/// The end of a mover.
#[derive(Debug, Clone, Copy)]
struct Interruption {
    /// The number of steps that it completes.
    completed: usize,
    /// The time after which it ends within the next step; `None` if it ends before that step.
    within: Option<Duration>,
    is_cancelled: bool,
}

pub async fn run(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let moves = size.kills(4, 100);
    let servers = Servers::start(test_server).await?;
    let mut test_run = servers.open_run(test_server, "move-postgres", kind, size.seed).await?;
    let opening = Opening::to_act(&servers.urls[0]);
    let mut random = Random::new(size.seed);
    let (mut ended, mut retries, mut slowest) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new(), Duration::ZERO);
    for index in 0..moves {
        let partition = u32::try_from(random.below(u64::from(PARTITIONS)))?;
        let at = place(&servers, &opening, partition).await?.0;
        let interruption = Interruption {
            completed: usize::try_from(size.seed.wrapping_add(index) % Step::ALL.len() as u64)?,
            within: random.one_in(2u64).then(|| Duration::from_millis(random.below(30u64))),
            is_cancelled: random.one_in(3u64),
        };
        let begun = Instant::now();
        begin(&opening, partition, &servers.urls[1 - at], interruption).await?;
        let now_at = resolve(&servers, &opening, partition, 1 - at, interruption.is_cancelled, &mut retries).await?;
        slowest = slowest.max(begun.elapsed());
        *ended.entry(if now_at == at { "cancelled" } else { "moved" }.to_owned()).or_default() += 1;
        servers.until_progress_at(now_at, partition, AFTERWARDS).await?;
    }
    test_run.note(format!("{moves} interrupted moves: {ended:?}, the longest {slowest:.1?}, errors on the way: {retries:?}"));
    servers.finish(test_run).await
}

/// Begins a move that ends early.
async fn begin(opening: &Opening, partition: u32, to: &str, interruption: Interruption) -> Result<(), Failure> {
    let mut moving = partition_move::begin(opening, partition, to).await?.ok_or("the partition is there already")?;
    for step in &Step::ALL[..interruption.completed] {
        // An error ends it earlier.
        if moving.step(*step).await.is_err() {
            return Ok(());
        }
    }
    if let Some(within) = interruption.within {
        // The future is dropped in the middle of the step.
        let _ = tokio::time::timeout(within, moving.step(Step::ALL[interruption.completed])).await;
    }
    Ok(())
}

/// Continues or cancels a move until the directory says that none is under way. Returns the server that has the partition.
async fn resolve(
    servers: &Servers,
    opening: &Opening,
    partition: u32,
    to: usize,
    mut is_cancelled: bool,
    retries: &mut BTreeMap<String, u32>,
) -> Result<usize, Failure> {
    let limit = Instant::now() + LIMIT;
    loop {
        let (at, is_moving) = place(servers, opening, partition).await?;
        if !is_moving && (is_cancelled || at == to) {
            return Ok(at);
        }
        let acted = if is_cancelled {
            partition_move::cancel(opening, partition).await.map(drop)
        } else {
            complete(opening, partition, &servers.urls[to]).await
        };
        if let Err(error) = acted {
            // A move whose rows are all copied is only continued.
            is_cancelled &= !error.to_string().contains("continue the move instead");
            if Instant::now() > limit {
                return Err(format!("the move of partition {partition} did not end within {LIMIT:?}: {error}").into());
            }
            *retries.entry(error.to_string()).or_default() += 1;
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

/// Takes all steps of a move.
async fn complete(opening: &Opening, partition: u32, to: &str) -> Result<(), fsm::Error> {
    if let Some(mut moving) = partition_move::begin(opening, partition, to).await? {
        for step in Step::ALL {
            moving.step(step).await?;
        }
    }
    Ok(())
}

/// The server that the directory lists for a partition, and whether a move is under way.
async fn place(servers: &Servers, opening: &Opening, partition: u32) -> Result<(usize, bool), Failure> {
    let listed = partitions::list(opening).await?;
    let place = &listed.iter().find(|one| one.place.partition.number() == partition).ok_or("the partition is not listed")?.place;
    let at = servers.urls.iter().position(|url| place.url.as_ref() == Some(url)).ok_or("the partition is on another server")?;
    Ok((at, place.moving_to.is_some()))
}
