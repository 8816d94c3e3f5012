//! The store on SQLite in memory, on SQLite in a file, and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod at_once;
mod batches;
mod claims;
mod door;
mod epochs;
mod errors;
mod health;
mod one_trip;
mod opening;
mod plans;
mod pooler;
pub(crate) mod samples;
mod servers;
mod statements;
mod time;
