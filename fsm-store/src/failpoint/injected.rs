//! An injected error with the code that a database would return.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use sqlx::error::{DatabaseError, ErrorKind};

#[cfg(feature = "sqlite")]
use crate::sqlite::thread::Refused;

/// Creates an error from a code: five characters are a SQLSTATE, a shorter number is a SQLite result code.
pub(super) fn error(code: &str) -> sqlx::Error {
    #[cfg(feature = "sqlite")]
    if let Some(number) = code.parse().ok().filter(|_| code.len() < 5) {
        return sqlx::Error::Database(Box::new(Refused::injected(number)));
    }
    sqlx::Error::Database(Box::new(Injected(code.to_owned())))
}

/// An error of PostgreSQL.
#[derive(Debug)]
struct Injected(String);

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an injected error of code {}", self.0)
    }
}

impl Error for Injected {}

impl DatabaseError for Injected {
    fn message(&self) -> &str {
        "an injected error"
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.0.as_str().into())
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
        ErrorKind::Other
    }
}
