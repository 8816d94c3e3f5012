//! The errors of the store.

pub mod class;
mod schema;

use std::fmt;
use std::time::Duration;

use sqlx::error::DatabaseError;

#[cfg(feature = "sqlite")]
use super::sqlite::thread::Refused;
pub use class::Class;
pub use schema::SchemaError;

/// The result of the store's functions.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The error of a store function. The text of an error contains no password.
#[derive(Debug)]
pub enum StoreError {
    /// The database refused a statement, or the connection failed during it.
    Database(sqlx::Error),
    /// The URL does not name a usable database.
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        says: String,
    },
    /// The program is built without the driver for the database.
    NoDriver {
        /// The URL, without its password.
        url: String,
        /// The feature of `durable-fsm` that has the driver.
        feature: &'static str,
    },
    /// No connection could be made.
    Unreachable {
        /// The database.
        place: String,
        /// The reason.
        source: sqlx::Error,
    },
    /// The tables are not those that this program reads and writes.
    Schema(SchemaError),
    /// The schema is not the partition that it should be.
    Partition {
        /// The schema.
        place: String,
        /// What is wrong with it.
        says: String,
    },
    /// A SQLite library that can corrupt a database.
    OldSqlite {
        /// The version of the library.
        found: String,
    },
    /// A write to a database that was opened for reading only.
    ReadOnly {
        /// The database.
        place: String,
    },
    /// The database does not accept writes now: it is a standby, a fail-over is in progress, or its storage is write-protected.
    NotWritable {
        /// The database.
        place: String,
    },
    /// An operation took longer than the deadline. The outcome is unknown.
    Deadline(Duration),
    /// The maximum number of transactions was open for this long. No transaction was begun.
    TooManyTransactions(Duration),
    /// Code that holds the only SQLite writer requested an operation that has to wait for this writer. It would wait for itself.
    SelfDeadlock,
    /// An earlier statement of this transaction failed or was abandoned, so the transaction cannot be committed.
    Aborted,
    /// Another transaction holds the lock on the instance, and the statement did not wait for it.
    Locked {
        /// The machine of the instance.
        machine: String,
        /// The user's name for it.
        key: String,
    },
    /// Another process changed the same rows first, and this showed only during the write. The whole request has to be decided again.
    ConcurrentChange,
    /// A panic in this process interrupted the commit. The outcome is unknown.
    Interrupted,
    /// The store was closed.
    Closed,
    /// A row contains a value that no version of this crate writes.
    Corrupt {
        /// The row, and what is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// The class of the error, which determines how each caller responds.
    pub fn class(&self) -> Class {
        match (self.own_class(), self) {
            (Some((_, class)), _) => class,
            (None, StoreError::Database(error) | StoreError::Unreachable { source: error, .. }) => of_database(error),
            (None, _) => Class::Unknown,
        }
    }

    /// The class of an error of the store itself, and its name in `docs/database-errors.md`; `None` for an error that wraps one of the
    /// driver.
    pub(crate) fn own_class(&self) -> Option<(&'static str, Class)> {
        Some(match self {
            StoreError::Database(_) | StoreError::Unreachable { .. } => return None,
            StoreError::NotWritable { .. } => ("NotWritable", Class::Unavailable),
            StoreError::Deadline(_) => ("Deadline", Class::Unknown),
            StoreError::Aborted => ("Aborted", Class::Unknown),
            StoreError::ConcurrentChange => ("ConcurrentChange", Class::Contended),
            StoreError::Locked { .. } => ("Locked", Class::Contended),
            StoreError::TooManyTransactions(_) => ("TooManyTransactions", Class::Contended),
            StoreError::SelfDeadlock => ("SelfDeadlock", Class::Rejected),
            StoreError::Interrupted => ("Interrupted", Class::Unknown),
            StoreError::Corrupt { .. } => ("Corrupt", Class::Rejected),
            StoreError::Url { .. } => ("Url", Class::Misfit),
            StoreError::NoDriver { .. } => ("NoDriver", Class::Misfit),
            StoreError::Schema(_) => ("Schema", Class::Misfit),
            StoreError::Partition { .. } => ("Partition", Class::Misfit),
            StoreError::OldSqlite { .. } => ("OldSqlite", Class::Misfit),
            StoreError::ReadOnly { .. } => ("ReadOnly", Class::Misfit),
            StoreError::Closed => ("Closed", Class::Misfit),
        })
    }

    /// True if the same request may succeed when it is retried.
    pub fn is_transient(&self) -> bool {
        !self.class().is_permanent()
    }

    /// True if a lock was not free in time. Only the request for the locked instance is at fault, not the other requests of its
    /// transaction.
    pub fn is_locked(&self) -> bool {
        match self {
            StoreError::Database(error) => error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCKED),
            StoreError::Locked { .. } => true,
            _ => false,
        }
    }
}

fn of_database(error: &sqlx::Error) -> Class {
    let Some(database) = error.as_database_error() else { return class::of_driver(error).1 };
    match (sqlite_code(database), database.code()) {
        (Some(code), _) => class::of_sqlite(code),
        (None, Some(code)) => class::of_sqlstate(&code),
        (None, None) => Class::Unknown,
    }
}

const LOCKED: &str = "55P03";
/// PostgreSQL ended the statement at its time limit.
#[cfg(feature = "postgres")]
const CANCELLED: &str = "57014";
const READ_ONLY: &str = "25006";
const SQLITE_READONLY: i64 = 8;

/// The extended result code of a SQLite error.
pub(super) fn sqlite_code(error: &dyn DatabaseError) -> Option<i64> {
    if is_of_sqlite(error) { error.code()?.parse().ok() } else { None }
}

#[cfg(feature = "sqlite")]
fn is_of_sqlite(error: &dyn DatabaseError) -> bool {
    error.try_downcast_ref::<Refused>().is_some() || error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some()
}

#[cfg(not(feature = "sqlite"))]
fn is_of_sqlite(_: &dyn DatabaseError) -> bool {
    false
}

fn primary_code(error: &dyn DatabaseError) -> Option<i64> {
    sqlite_code(error).map(|code| code & 0xff)
}

/// True if the database reported that it cannot be written to.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    match primary_code(error) {
        Some(code) => code == SQLITE_READONLY,
        None => error.code().is_some_and(|code| code == READ_ONLY),
    }
}

/// True if the server cannot be written to or is shutting down, so that idle connections to it are useless too.
pub(super) fn is_server_lost(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    is_read_only(error)
        || matches!(error, sqlx::Error::Io(_))
        || code.is_some_and(|code| ["57P", "08"].iter().any(|class| code.starts_with(class)))
}

/// True if a statement that locks tables met its time limit, or another transaction that holds them.
#[cfg(feature = "postgres")]
pub(super) fn is_of_locks(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == CANCELLED || class::of_sqlstate(&code) == Class::Contended)
}

impl From<SchemaError> for StoreError {
    fn from(error: SchemaError) -> Self {
        StoreError::Schema(error)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let error = match error {
            sqlx::Error::ColumnDecode { index, source } => StoreError::Corrupt { what: format!("column {index} cannot be read: {source}") },
            error if is_read_only(&error) => StoreError::NotWritable { place: "the database".into() },
            error => StoreError::Database(error),
        };
        #[cfg(feature = "metrics")]
        metrics::counter!("fsm_database_errors_total", "kind" => error.class().word()).increment(1);
        error
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
            StoreError::NoDriver { url, feature } => write!(
                f,
                "`{url}` needs the feature `{feature}` of durable-fsm, which this program is built without; add it to `features` in Cargo.toml"
            ),
            StoreError::Unreachable { place, source } => {
                write!(f, "{place} cannot be opened: {source}; check that it exists, runs and lets this user in")
            }
            StoreError::Schema(error) => error.fmt(f),
            StoreError::Partition { place, says } => write!(f, "{place} {says}"),
            StoreError::OldSqlite { found } => write!(
                f,
                "the SQLite linked here is {found}, which can corrupt a database in WAL mode; 3.51.3 or later is needed, and the bundled one is"
            ),
            StoreError::ReadOnly { place } => {
                write!(f, "{place} is open for reading only; open it with write access, or connect to the primary server")
            }
            StoreError::NotWritable { place } => {
                write!(f, "{place} accepts no writes now; check that the file can be written, or that this server is the primary")
            }
            StoreError::Deadline(limit) => {
                write!(f, "the database did not answer within {} s; its connection is closed", limit.as_secs_f64())
            }
            StoreError::TooManyTransactions(limit) => write!(
                f,
                "as many transactions as may be open were open for {} s; end them sooner, or give the runtime more `connections`",
                limit.as_secs_f64()
            ),
            StoreError::SelfDeadlock => f.write_str(
                "this verb holds the one writer of SQLite since `ctx.sqlite()`, and nothing else is committed until it ends; ask before \
                 `ctx.sqlite()`, or send with `ctx.send`, or with `send_in` in its own transaction",
            ),
            StoreError::Aborted => f.write_str("a statement of this transaction failed before, so none of it is written; begin a new one"),
            StoreError::Locked { machine, key } => write!(
                f,
                "`{machine}` `{}` is locked by another transaction for too long; end that one, or send again later",
                key.escape_debug()
            ),
            StoreError::ConcurrentChange => f.write_str("another process changed the same instance at the same time; try again"),
            StoreError::Interrupted => {
                f.write_str("a panic inside this process interrupted the commit; whether it took effect is not known")
            }
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
