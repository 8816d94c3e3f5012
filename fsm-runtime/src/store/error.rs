//! What can go wrong between the engine and a database.

use std::fmt;
use std::time::Duration;

use super::thread::Refused;

/// What the store's functions return.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why the store could not do as asked. No text of it shows a password.
#[derive(Debug)]
pub enum StoreError {
    /// The database refused a statement, or the connection broke under it.
    Database(sqlx::Error),
    /// The URL names no database that can be used.
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        says: String,
    },
    /// No connection could be made.
    Unreachable {
        /// Which database.
        place: String,
        /// Why.
        source: sqlx::Error,
    },
    /// The database was migrated by a later version of this crate.
    NewerSchema {
        /// Its version.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// The database was migrated by an earlier version of this crate, and was opened without leave to change that.
    OlderSchema {
        /// Its version.
        found: i64,
        /// The newest one known here.
        known: i64,
    },
    /// There are no tables of this crate in the database.
    NoTables {
        /// Which database.
        place: String,
    },
    /// A migration that the database has is not the one of that number here.
    OtherSchema {
        /// The migration's number.
        version: i64,
    },
    /// A SQLite library that can corrupt a database.
    OldSqlite {
        /// Its version.
        found: String,
    },
    /// Something was to be written where nothing can be.
    ReadOnly {
        /// Which database.
        place: String,
    },
    /// An operation took longer than allowed. Whether it took effect is not known.
    Deadline(Duration),
    /// A statement of this transaction failed or was abandoned before, so nothing of it can be committed.
    Aborted,
    /// Another process was faster, in a way that only shows when it is written: all of it is to be decided again.
    Overtaken,
    /// The store was closed.
    Closed,
    /// A row holds what no version of this crate writes.
    Corrupt {
        /// Which row, and what is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// Whether the same request may succeed when it is made again: the connection was lost, or another transaction was in the way.
    pub fn is_transient(&self) -> bool {
        match self {
            StoreError::Database(error) => is_transient(error),
            StoreError::Unreachable { source, .. } => is_transient(source),
            StoreError::Deadline(_) | StoreError::Aborted | StoreError::Overtaken => true,
            _ => false,
        }
    }

    /// Whether a lock was not free in time: the fault of one of those whom the transaction concerned, and not of the others.
    pub fn is_locked(&self) -> bool {
        match self {
            StoreError::Database(error) => error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCKED),
            _ => false,
        }
    }
}

fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::PoolTimedOut | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(error) => match (sqlite_code(&**error), error.code()) {
            (Some(code), _) => matches!(code, SQLITE_BUSY | SQLITE_LOCKED | SQLITE_FULL),
            (None, Some(code)) => TRANSIENT.iter().any(|class| code.starts_with(class)),
            (None, None) => false,
        },
        _ => false,
    }
}

/// Connection lost, rolled back for another's sake, disk full, no connection or lock free, shutting down.
const TRANSIENT: [&str; 6] = ["08", "40", "53100", "53300", "55P03", "57P0"];
const LOCKED: &str = "55P03";
const SQLITE_BUSY: i64 = 5;
const SQLITE_LOCKED: i64 = 6;
const SQLITE_READONLY: i64 = 8;
const SQLITE_FULL: i64 = 13;

/// The primary code of a SQLite error.
fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<i64> {
    let is_sqlite = error.try_downcast_ref::<Refused>().is_some() || error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some();
    if !is_sqlite {
        return None;
    }
    error.code()?.parse::<i64>().ok().map(|code| code & 0xff)
}

/// Whether another process's transaction keeps SQLite from writing.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlite_code) == Some(SQLITE_BUSY)
}

/// Whether the database said that it cannot be written to.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match sqlite_code(error) {
        Some(code) => code == SQLITE_READONLY,
        None => error.code().is_some_and(|code| code == "25006"),
    }
}

/// Whether the server cannot be written to or goes away, so that idle connections to it are of no use either.
pub(super) fn is_server_lost(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    is_read_only(error)
        || matches!(error, sqlx::Error::Io(_))
        || code.is_some_and(|code| ["57P", "08"].iter().any(|class| code.starts_with(class)))
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::ColumnDecode { index, source } => StoreError::Corrupt { what: format!("column {index} cannot be read: {source}") },
            error if is_read_only(&error) => StoreError::ReadOnly { place: "the database".into() },
            error => StoreError::Database(error),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Database(error) => write!(f, "the database says: {error}"),
            StoreError::Url { url, says } => write!(
                f,
                "`{url}` {says}; a database is `sqlite://payments.db`, `payments.db`, `sqlite::memory:` or `postgres://user@host/name`"
            ),
            StoreError::Unreachable { place, source } => {
                write!(f, "{place} cannot be opened: {source}; check that it exists, runs and lets this user in")
            }
            StoreError::NewerSchema { found, known } => write!(
                f,
                "the database has schema {found}, and this program knows schemas up to {known}; start a program built with a newer durable-fsm"
            ),
            StoreError::OlderSchema { found, known } => write!(
                f,
                "the database has schema {found}, and this program needs schema {known}; bring it up to date with `fsm migrate up`, or start a runtime"
            ),
            StoreError::NoTables { place } => {
                write!(f, "{place} has no tables of durable-fsm; a runtime makes them when it starts, and so does `fsm migrate up`")
            }
            StoreError::OtherSchema { version } => write!(
                f,
                "migration {version} in the database is not the one of this program; use the release of durable-fsm that made this database, or another database"
            ),
            StoreError::OldSqlite { found } => write!(
                f,
                "the SQLite linked here is {found}, which can corrupt a database in WAL mode; 3.51.3 or later is needed, and the bundled one is"
            ),
            StoreError::ReadOnly { place } => {
                write!(f, "{place} is open for reading only; open it with write access, or connect to the primary server")
            }
            StoreError::Deadline(limit) => {
                write!(f, "the database did not answer within {} s; its connection is closed", limit.as_secs_f64())
            }
            StoreError::Aborted => f.write_str("a statement of this transaction failed before, so none of it is written; begin a new one"),
            StoreError::Overtaken => f.write_str("another process changed the same instance at the same time; try again"),
            StoreError::Closed => f.write_str("the store is closed; open it again"),
            StoreError::Corrupt { what } => write!(f, "the database holds what durable-fsm never writes: {what}"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Database(error) | StoreError::Unreachable { source: error, .. } => Some(error),
            _ => None,
        }
    }
}
