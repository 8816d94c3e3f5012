//! Reads all partitions of a database for one page. A partition that does not answer in time delays the page only up to a limit.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::format::span;
use crate::shared::{Asked, Shared};

/// A partition that does not answer within this time is shown as unreachable.
const LIMIT_OF_ONE: Duration = Duration::from_secs(2);
/// The time limit of all partitions together. It leaves the page some of its own limit.
const LIMIT_OF_ALL: Duration = Duration::from_secs(8);
/// The number of partitions that are read at a time.
const AT_A_TIME: usize = 16;

/// One partition, and what was read of it or the reason why nothing was.
pub(super) struct OfPartition<T> {
    pub(super) shared: Arc<Shared>,
    pub(super) read: Result<T, String>,
}

impl<T> OfPartition<T> {
    /// The number of the partition.
    pub(super) fn number(&self) -> u32 {
        self.shared.partition().map_or(0, |partition| partition.number())
    }
}

/// Reads each partition, by number. It takes at most eight seconds, however many partitions do not answer.
pub(super) async fn read_each<T, F>(asked: &Asked, read: fn(Admin) -> F) -> Vec<OfPartition<T>>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = Instant::now() + LIMIT_OF_ALL;
    let of_one = |shared: Arc<Shared>| async move { OfPartition { read: read_until(&shared, end, read).await, shared } };
    stream::iter(asked.shared.partitions().iter().cloned()).map(of_one).buffered(AT_A_TIME).collect().await
}

/// Reads a partition, or returns the reason why that was not possible until `end` or within its own limit.
async fn read_until<T, F>(shared: &Shared, end: Instant, read: fn(Admin) -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, Error>>,
{
    // A query of a database that does not answer would wait, and the program knows already.
    if let Some(why) = shared.observed_outage() {
        return Err(why);
    }
    let limit = end.min(Instant::now() + LIMIT_OF_ONE);
    match timeout_at(limit, async { read(shared.admin().await?).await }).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it has not answered within {}", span(LIMIT_OF_ONE))),
    }
}

/// The time of the page: that of the first partition that was read.
pub(super) fn now_of(mut read: impl Iterator<Item = Timestamp>) -> Timestamp {
    read.next().unwrap_or_else(|| Timestamp::from(SystemTime::now()))
}
