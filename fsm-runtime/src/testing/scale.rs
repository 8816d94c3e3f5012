//! Large databases for measurements.

pub use fsm_store::testing::scale::{BEGINS_AT_MS, ends_at_ms};

use crate::error::Error;

/// Creates the tables in the empty database at `url` and fills them with `instances` of the machine `order`, with about five attempts each,
/// and ten instances of `parcel`. The search fields of an order are its customer, who has ten, and its tenant, who has half of all. Every
/// invariant holds. On PostgreSQL the tables are vacuumed and analyzed. An error if the database fails.
pub async fn fill(url: &str, instances: u64) -> Result<(), Error> {
    Ok(fsm_store::testing::scale::fill(url, instances).await?)
}
