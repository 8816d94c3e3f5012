//! The store on SQLite in memory, on SQLite in a file, and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(unused, reason = "the tests of the other database are left out, and their samples are not")
)]

#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod all_statements;
mod batches;
mod claims;
mod errors;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod file_versions;
mod health;
#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
mod no_driver;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod opening;
mod partition_outbox;
#[cfg(all(unix, feature = "postgres"))]
mod partitions;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod plans;
#[cfg(feature = "postgres")]
mod pooler;
mod records;
mod remote_children;
mod samples;
#[cfg(feature = "sqlite")]
mod script;
#[cfg(feature = "postgres")]
mod servers;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod single_statement;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod statements;
mod write_path;
