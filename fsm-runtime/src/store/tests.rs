//! The store on SQLite in memory, on SQLite in a file, and on PostgreSQL.

// This module is one of tests, which the lint does not see behind the feature.
#![allow(clippy::unwrap_used)]

mod claims;
mod door;
mod health;
mod opening;
mod samples;
mod statements;
