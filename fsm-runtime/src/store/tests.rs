//! The store on SQLite in memory, on SQLite in a file, and on PostgreSQL.

mod claims;
mod door;
mod health;
mod opening;
mod samples;
mod statements;
