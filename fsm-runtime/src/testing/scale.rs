//! Large databases for measurements.

pub use fsm_store::testing::scale::{BEGINS_AT_MS, ends_at_ms};

use std::time::Duration;

use crate::error::Error;

/// Creates the tables in the empty database at `url` and fills them with `instances` of the machine `order`, with about five attempts each,
/// and ten instances of `parcel`. The search fields of an order are its customer, who has ten, and its tenant, who has half of all. Every
/// invariant holds. On PostgreSQL the tables are vacuumed and analyzed. An error if the database fails.
pub async fn fill(url: &str, instances: u64) -> Result<(), Error> {
    Ok(fsm_store::testing::scale::fill(url, instances).await?)
}

/// Lets `calls` waiting attempts of the [filled](fill) database execute in a session that has ended, and finds them as a sweeper does. Returns
/// the times of eleven searches, each on a new connection. An error if a search finds another number, or the database fails.
pub async fn find_calls_of_dead_worker(url: &str, instances: u64, calls: usize) -> Result<Vec<Duration>, Error> {
    Ok(fsm_store::testing::scale::find_calls_of_dead_worker(url, instances, calls).await?)
}
