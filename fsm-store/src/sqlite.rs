//! SQLite: the feature `sqlite`.

mod begin;
mod file;
pub mod file_versions;
pub(super) mod listener;
mod open;
pub(super) mod pools;
mod reading;
pub mod savepoint;
mod script;
mod statements;
pub mod thread;
mod turn;
mod user;

pub(super) use script::SqliteLog;
