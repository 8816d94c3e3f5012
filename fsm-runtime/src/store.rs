//! The one place that speaks to a database. It knows keys, order and guards, never policy, and never reads a clock.

pub mod acts;
mod address;
pub mod claim;
pub mod conn;
pub mod database_facts;
pub mod drift;
pub mod drivers;
pub(crate) mod encrypted;
pub mod error;
pub(crate) mod failpoint;
pub mod fair;
pub mod family;
pub mod file_version;
mod guarded;
pub(crate) mod held;
pub mod invariants;
pub mod limit_values;
pub mod limits;
pub mod lock;
pub mod machines;
pub mod migrate;
pub mod notifications;
pub mod once;
pub mod open;
pub mod outbox;
pub mod overview;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
pub mod progress;
pub mod prune;
mod rights;
mod rows;
pub mod schedules;
pub mod search;
pub mod session_log;
pub mod sessions;
pub mod settings;
mod shares;
mod sink;
pub(crate) mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod timers;
pub mod traces;
pub mod transfer;
pub mod tx;
mod values;
pub mod view;
pub mod workers;
pub mod write;

#[cfg(all(test, feature = "testing"))]
pub(crate) mod tests;
