//! An error that a test injects: what a database would answer with, by its code.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use sqlx::error::{DatabaseError, ErrorKind};

use crate::store::thread::Refused;

/// Five characters are a SQLSTATE, and another number is a result code of SQLite.
pub(super) fn error(code: &str) -> sqlx::Error {
    match code.parse() {
        Ok(number) if code.len() < 5 => sqlx::Error::Database(Box::new(Refused::injected(number))),
        _ => sqlx::Error::Database(Box::new(Injected(code.to_owned()))),
    }
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
