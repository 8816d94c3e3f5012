//! The store on SQLite in memory, on SQLite in a file, and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod all_statements;
mod batches;
mod claims;
mod errors;
mod file_versions;
mod health;
mod opening;
mod plans;
mod pooler;
pub(crate) mod samples;
mod script;
mod servers;
mod single_statement;
mod statements;
mod time;
mod write_path;
