//! The errors about tables that this program does not fit.

use std::fmt;

/// The difference between the schema of the database and the one of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// The database was migrated by a later version of this crate.
    Newer {
        /// The schema version of the database.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    /// The database was migrated by an earlier version of this crate, and was opened by a process that does not migrate.
    Older {
        /// The schema version of the database.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    /// The database has no tables of this crate.
    NoTables {
        /// The database.
        place: String,
    },
    /// A migration in the database differs from the migration with the same number in this program.
    Other {
        /// The migration's number.
        version: i64,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Newer { found, known } => write!(
                f,
                "the database has schema {found}, and this program knows schemas up to {known}; start a program built with a newer durable-fsm"
            ),
            SchemaError::Older { found, known } => write!(
                f,
                "the database has schema {found}, and this program needs schema {known}; bring it up to date with `fsm migrate up`, or start a runtime"
            ),
            SchemaError::NoTables { place } => {
                write!(f, "{place} has no tables of durable-fsm; a runtime makes them when it starts, and so does `fsm migrate up`")
            }
            SchemaError::Other { version } => write!(
                f,
                "migration {version} in the database is not the one of this program; use the release of durable-fsm that made this database, or another database"
            ),
        }
    }
}
