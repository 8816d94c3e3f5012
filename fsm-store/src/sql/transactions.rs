//! The beginning and the end of transactions.

use super::statement::Sql;

/// Resets the lock timeout to the database's own for the rest of the transaction.
pub const LOCK_TIMEOUT_TO_DEFAULT: &str = "set local lock_timeout to default";

/// Limits each statement of the transaction to `$1` milliseconds. SQLite has no such setting.
pub const LIMIT_STATEMENTS: Sql = Sql { sqlite: "select $1", postgres: "select set_config('statement_timeout', $1, true)" };

pub const COMMIT: &str = "commit";

/// Ends the use of a transaction by a user's statements. It fails if they left the transaction failed, or ended it.
pub const RELEASE_LENT: &str = "release savepoint fsm_lent";

pub const ROLLBACK: &str = "rollback";
