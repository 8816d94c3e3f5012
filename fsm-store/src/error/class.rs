//! The class of every database error, as tables: by SQLSTATE class and code for PostgreSQL, by result code for SQLite, by variant for the
//! driver.
//!
//! `docs/database-errors.md` shows the same tables; a test compares the two. A condition that is not proven permanent is retried.

/// The class of an error, by its cause: the database as a whole, another transaction, or the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The database as a whole cannot serve any request now.
    Unavailable,
    /// Another transaction conflicted with one of the requests.
    Contended,
    /// The error may be temporary. Either the database or one of the requests can be the cause.
    Unknown,
    /// The database rejects the data of this request. A retry does not help.
    Rejected,
    /// The schema, the settings or the program have to be changed first.
    Misfit,
}

/// The part of the system that gets an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A program that sends an event or operates on an instance.
    Caller,
    /// The completion of an attempt.
    Report,
    /// A loop of the engine: claims, sweeps, timers, leases, pruning.
    Loop,
    /// A runtime that starts, or a client that connects.
    Start,
}

/// The response to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// Retried until the caller's patience ends; then the error is returned.
    RetryWithinPatience,
    /// Retried with exponential backoff for as long as the process lives.
    RetryAlways,
    /// Returned at once.
    Return,
}

/// The way in which a failed batch of several requests is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Retried together.
    Together,
    /// Each request is tried once more by itself at once, and only those that fail again are affected.
    EachAtOnce,
    /// Each request is retried in a commit of its own, after the backoff.
    EachLater,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 5] = [Class::Unavailable, Class::Contended, Class::Unknown, Class::Rejected, Class::Misfit];

    /// The class as one word in lower case, for labels.
    pub fn word(self) -> &'static str {
        match self {
            Class::Unavailable => "unavailable",
            Class::Contended => "contended",
            Class::Unknown => "unknown",
            Class::Rejected => "rejected",
            Class::Misfit => "misfit",
        }
    }

    /// True if it is proven that the same request fails again until the request, the schema or the program is changed.
    pub fn is_permanent(self) -> bool {
        matches!(self, Class::Rejected | Class::Misfit)
    }

    /// The response of `actor` to an error of this class.
    pub fn response(self, actor: Actor) -> Response {
        match actor {
            // A completion must be retried until it is stored: a successful attempt must never be recorded as failed. A loop also serves
            // other instances.
            Actor::Report | Actor::Loop => Response::RetryAlways,
            Actor::Caller | Actor::Start if self.is_permanent() => Response::Return,
            Actor::Caller | Actor::Start => Response::RetryWithinPatience,
        }
    }

    /// The way in which a batch is retried after its commit failed with an error of this class.
    pub fn batch(self) -> Batch {
        match self {
            Class::Unavailable => Batch::Together,
            Class::Unknown => Batch::EachLater,
            Class::Contended | Class::Rejected | Class::Misfit => Batch::EachAtOnce,
        }
    }
}

use Class::{Contended, Misfit, Rejected, Unavailable, Unknown};

/// The classes of PostgreSQL's SQLSTATE (appendix A of its manual).
pub(crate) const SQLSTATE_CLASSES: [(&str, Class); 44] = [
    ("00", Unknown),
    ("01", Unknown),
    ("02", Unknown),
    ("03", Unknown),
    ("08", Unavailable),
    ("09", Rejected),
    ("0A", Unknown),
    ("0B", Unknown),
    ("0F", Rejected),
    ("0L", Misfit),
    ("0P", Misfit),
    ("0Z", Rejected),
    ("10", Rejected),
    ("20", Rejected),
    ("21", Rejected),
    ("22", Rejected),
    ("23", Rejected),
    ("24", Unknown),
    ("25", Unknown),
    ("26", Unknown),
    ("27", Rejected),
    ("28", Unavailable),
    ("2B", Misfit),
    ("2D", Unknown),
    ("2F", Rejected),
    ("34", Unknown),
    ("38", Unknown),
    ("39", Unknown),
    ("3B", Unknown),
    ("3D", Unavailable),
    ("3F", Misfit),
    ("40", Contended),
    ("42", Misfit),
    ("44", Rejected),
    ("53", Unavailable),
    ("54", Unknown),
    ("55", Unknown),
    ("57", Unavailable),
    ("58", Unknown),
    ("72", Unknown),
    ("F0", Unavailable),
    ("HV", Unknown),
    ("P0", Rejected),
    ("XX", Unknown),
];

/// The codes whose class differs from the class of their first two characters.
pub(crate) const SQLSTATE_CODES: [(&str, Class); 12] = [
    ("23001", Contended),
    ("23503", Contended),
    ("23505", Contended),
    ("23P01", Contended),
    ("25006", Unavailable),
    ("40003", Unavailable),
    ("42P05", Unknown),
    ("53200", Unknown),
    ("55P02", Misfit),
    ("55P03", Contended),
    ("57014", Unknown),
    ("58P03", Unavailable),
];

/// The primary result codes of SQLite.
pub(crate) const SQLITE_PRIMARY: [(i64, &str, Class); 31] = [
    (0, "OK", Unknown),
    (1, "ERROR", Misfit),
    (2, "INTERNAL", Unknown),
    (3, "PERM", Unavailable),
    (4, "ABORT", Unknown),
    (5, "BUSY", Unavailable),
    (6, "LOCKED", Unavailable),
    (7, "NOMEM", Unavailable),
    (8, "READONLY", Unavailable),
    (9, "INTERRUPT", Unknown),
    (10, "IOERR", Unavailable),
    (11, "CORRUPT", Unknown),
    (12, "NOTFOUND", Unknown),
    (13, "FULL", Unavailable),
    (14, "CANTOPEN", Unavailable),
    (15, "PROTOCOL", Unavailable),
    (16, "EMPTY", Unknown),
    (17, "SCHEMA", Unknown),
    (18, "TOOBIG", Rejected),
    (19, "CONSTRAINT", Rejected),
    (20, "MISMATCH", Rejected),
    (21, "MISUSE", Unknown),
    (22, "NOLFS", Unavailable),
    (23, "AUTH", Misfit),
    (24, "FORMAT", Misfit),
    (25, "RANGE", Rejected),
    (26, "NOTADB", Misfit),
    (27, "NOTICE", Unknown),
    (28, "WARNING", Unknown),
    (100, "ROW", Unknown),
    (101, "DONE", Unknown),
];

/// The extended result codes of SQLite whose class differs from the class of their primary code.
pub(crate) const SQLITE_EXTENDED: [(i64, &str, Class); 7] = [
    (266, "IOERR_READ", Unknown),
    (513, "ERROR_RETRY", Unknown),
    (522, "IOERR_SHORT_READ", Unknown),
    (769, "ERROR_SNAPSHOT", Unknown),
    (787, "CONSTRAINT_FOREIGNKEY", Contended),
    (1555, "CONSTRAINT_PRIMARYKEY", Contended),
    (2067, "CONSTRAINT_UNIQUE", Contended),
];

/// The class of a PostgreSQL error.
pub(crate) fn of_sqlstate(code: &str) -> Class {
    let exact = SQLSTATE_CODES.iter().find(|(known, _)| *known == code);
    let by_class = || SQLSTATE_CLASSES.iter().find(|(class, _)| code.starts_with(class));
    exact.or_else(by_class).map_or(Unknown, |(_, class)| *class)
}

/// The class of a SQLite error, by its extended result code.
pub(crate) fn of_sqlite(code: i64) -> Class {
    let exact = SQLITE_EXTENDED.iter().find(|(known, ..)| *known == code);
    let primary = || SQLITE_PRIMARY.iter().find(|(known, ..)| *known == code & 0xff);
    exact.or_else(primary).map_or(Unknown, |(.., class)| *class)
}

/// The class of a driver error, and its name in `docs/database-errors.md`. Does not look at the codes of database errors.
pub(crate) fn of_driver(error: &sqlx::Error) -> (&'static str, Class) {
    match error {
        sqlx::Error::Io(_) => ("Io", Unavailable),
        sqlx::Error::Tls(_) => ("Tls", Unavailable),
        sqlx::Error::Protocol(_) => ("Protocol", Unavailable),
        sqlx::Error::PoolTimedOut => ("PoolTimedOut", Unavailable),
        sqlx::Error::PoolClosed => ("PoolClosed", Unavailable),
        sqlx::Error::WorkerCrashed => ("WorkerCrashed", Unavailable),
        sqlx::Error::BeginFailed => ("BeginFailed", Unavailable),
        sqlx::Error::Configuration(_) => ("Configuration", Misfit),
        sqlx::Error::Encode(_) => ("Encode", Rejected),
        sqlx::Error::InvalidArgument(_) => ("InvalidArgument", Rejected),
        sqlx::Error::RowNotFound => ("RowNotFound", Misfit),
        sqlx::Error::TypeNotFound { .. } => ("TypeNotFound", Misfit),
        sqlx::Error::ColumnIndexOutOfBounds { .. } => ("ColumnIndexOutOfBounds", Misfit),
        sqlx::Error::ColumnNotFound(_) => ("ColumnNotFound", Misfit),
        sqlx::Error::ColumnDecode { .. } => ("ColumnDecode", Rejected),
        sqlx::Error::Decode(_) => ("Decode", Rejected),
        _ => ("any other", Unknown),
    }
}
