//! PostgreSQL: the feature `postgres`.

mod begin;
mod clock_difference;
pub(super) mod combined;
mod copy;
pub(super) mod listener;
pub(super) mod location;
mod open;
pub mod partition_move;
mod plans;
pub(super) mod pool;
pub(super) mod servers;
pub(super) mod settings;
pub(super) mod shared_listener;
mod statements;

/// The name of a schema or table in a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
