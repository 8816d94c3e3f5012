//! Errors of SQLite as errors of the driver sqlx, so that both databases have the same error type.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use rusqlite::ffi;
use sqlx::error::{DatabaseError, ErrorKind};

/// The message and the extended result code of a SQLite error.
#[derive(Debug)]
pub(crate) struct Refused {
    code: i32,
    message: String,
}

/// Converts an error of SQLite, or of the path to it.
pub(super) fn refused(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(error, message) => {
            let message = message.unwrap_or_else(|| error.to_string());
            sqlx::Error::Database(Box::new(Refused { code: error.extended_code, message }))
        }
        other => sqlx::Error::Protocol(other.to_string()),
    }
}

#[cfg(feature = "testing")]
impl Refused {
    /// An injected error with this code.
    pub(crate) fn injected(code: i32) -> Refused {
        Refused { code, message: "an injected error".to_owned() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(code: {}) {}", self.code, self.message)
    }
}

impl Error for Refused {}

impl DatabaseError for Refused {
    fn message(&self) -> &str {
        &self.message
    }

    /// The extended result code.
    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY => ErrorKind::UniqueViolation,
            ffi::SQLITE_CONSTRAINT_FOREIGNKEY => ErrorKind::ForeignKeyViolation,
            ffi::SQLITE_CONSTRAINT_NOTNULL => ErrorKind::NotNullViolation,
            ffi::SQLITE_CONSTRAINT_CHECK => ErrorKind::CheckViolation,
            _ => ErrorKind::Other,
        }
    }
}
