//! The one place that speaks to a database. It knows keys, order and guards, never policy, and never reads a clock.

pub mod claim;
pub mod conn;
pub mod error;
pub mod invariants;
pub mod lock;
pub mod machines;
pub mod migrate;
pub mod once;
pub mod open;
pub mod overview;
mod pool;
mod rows;
pub mod sessions;
pub(crate) mod sql;
pub mod timers;
pub mod view;
pub mod write;

#[cfg(all(test, feature = "testing"))]
mod tests;
