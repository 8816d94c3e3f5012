//! The transactions and versions of SQLite.

use super::statement::{Sql, same};

/// Takes SQLite's write lock at once, instead of at the first statement that writes.
pub const BEGIN_SQLITE: &str = "begin immediate";

/// Begins a transaction that reads one snapshot.
pub const SNAPSHOT_SQLITE: &str = "begin";

/// The version of the linked SQLite.
pub const SQLITE_VERSION: Sql = same("select sqlite_version()");

/// A number that changes with each commit of another connection. SQLite only.
pub const DATA_VERSION: Sql = same("pragma data_version");
