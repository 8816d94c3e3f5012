//! The metrics of the engine, through the `metrics` facade. Without the feature `metrics` every function of this module is empty.
//!
//! No label contains a key. `docs/guide/src/observability.md` lists every metric; a test compares that table with [`NAMES`](names::NAMES).

mod measured;
pub mod names;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod recorded;

pub(crate) use measured::{AttemptOutcome, Backlog, Sizes};
#[cfg(not(feature = "metrics"))]
pub(crate) use off::*;
#[cfg(feature = "metrics")]
pub(crate) use recorded::*;
