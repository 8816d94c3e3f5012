//! The one place that speaks to a database. It knows keys, order and guards, never policy, and never reads a clock.

pub mod acts;
mod address;
pub mod claim;
mod combined;
pub mod conn;
pub mod drift;
pub(crate) mod encrypted;
pub mod error;
pub(crate) mod failpoint;
pub mod file_version;
mod guarded;
pub(crate) mod held;
pub mod invariants;
pub mod lock;
pub mod machines;
pub mod migrate;
pub mod notifications;
pub mod once;
pub mod open;
pub mod outbox;
pub mod overview;
mod plans;
mod pool;
mod postgres;
pub mod prune;
mod reading;
mod rights;
mod rows;
pub mod savepoint;
mod script;
mod servers;
pub mod sessions;
mod shares;
pub(crate) mod sql;
mod sqlite;
mod thread;
pub mod timers;
pub mod transfer;
mod turn;
pub mod tx;
mod user_sqlite;
mod values;
pub mod view;
pub mod write;

#[cfg(all(test, feature = "testing"))]
pub(crate) mod tests;
