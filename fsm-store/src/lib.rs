//! The one place that speaks to a database. It knows keys, order and guards, never policy, and never reads a clock.
//!
//! This crate is internal to durable-fsm and makes no promise of stability. Users depend on `durable-fsm`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!(
    "durable-fsm needs a database: turn on its feature `sqlite` (embedded in the program) or `postgres`, or both. \
     Both are on by default; with `default-features = false`, name one: features = [\"sqlite\"]"
);

pub mod acts;
mod address;
pub mod claim;
mod commit;
pub mod conn;
pub mod database_facts;
pub mod drift;
pub mod drivers;
pub mod encrypted;
pub mod error;
pub mod failpoint;
pub mod fair;
pub mod family;
mod guarded;
pub mod held;
pub mod invariants;
pub mod limit_permits;
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
pub mod pages;
pub mod parent_elsewhere;
pub mod partition_outbox;
pub mod partition_place;
pub mod partitions;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
pub mod progress;
pub mod prune;
pub mod remote_children;
mod rights;
mod rows;
pub mod schedules;
pub mod search;
pub mod session_log;
pub mod sessions;
pub mod settings;
pub mod shared_connection;
mod shares;
mod sink;
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timers;
pub mod traces;
pub mod transfer;
pub mod tx;
mod values;
pub mod view;
pub mod workers;
pub mod write;

#[cfg(feature = "postgres")]
pub use postgres::partition_move;

#[cfg(all(test, feature = "testing"))]
mod tests;
