//! PostgreSQL: the feature `postgres`.

mod begin;
pub(super) mod combined;
pub(super) mod listener;
mod open;
mod plans;
pub(super) mod pool;
pub(super) mod servers;
pub(super) mod settings;
mod statements;
