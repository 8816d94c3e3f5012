//! The one place that speaks to a database. It knows keys, order and guards, never policy, and never reads a clock.

mod address;
pub mod claim;
pub mod conn;
pub mod drift;
pub mod epoch;
pub mod error;
pub(crate) mod fault;
pub(crate) mod held;
pub mod invariants;
mod lent;
mod link;
pub mod lock;
pub mod machines;
pub mod migrate;
pub mod notice;
pub mod once;
mod one_trip;
pub mod open;
pub mod overview;
mod plans;
mod pool;
mod postgres;
pub mod prune;
mod reading;
mod rights;
mod rows;
pub mod savepoint;
pub(crate) mod sealed;
mod servers;
pub mod sessions;
mod shares;
pub(crate) mod sql;
mod sqlite;
mod thread;
pub mod timers;
mod together;
pub mod transfer;
mod turn;
pub mod tx;
mod values;
pub mod view;
pub mod write;

#[cfg(all(test, feature = "testing"))]
pub(crate) mod tests;
