//! Why a command did not do as it was told, and the code it ends with.

use std::fmt;
use std::io;

use fsm_runtime::error::{Error, ErrorKind};

/// What ends a command early. The code of each is part of what the command promises.
#[derive(Debug)]
pub enum Problem {
    /// 1: something else failed.
    Failed(String),
    /// 2: the command was called wrongly.
    Usage(String),
    /// 3: there is no such machine, verb or instance.
    NotFound(String),
    /// 4: the instance as it stands does not allow it.
    Refused(String),
    /// 5: another request has this id.
    Conflict(String),
    /// 6: the instance is in error, and the command was asked to say so.
    InError,
    /// 7: the database cannot be used, or its tables.
    Database(String),
    /// 0: whoever read the output has seen enough.
    Unheard,
}

impl Problem {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Problem::Unheard => 0,
            Problem::Failed(_) => 1,
            Problem::Usage(_) => 2,
            Problem::NotFound(_) => 3,
            Problem::Refused(_) => 4,
            Problem::Conflict(_) => 5,
            Problem::InError => 6,
            Problem::Database(_) => 7,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Failed(text)
            | Problem::Usage(text)
            | Problem::NotFound(text)
            | Problem::Refused(text)
            | Problem::Conflict(text)
            | Problem::Database(text) => f.write_str(text),
            Problem::InError | Problem::Unheard => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Input => Problem::Usage(text),
            ErrorKind::NotFound => Problem::NotFound(text),
            ErrorKind::Refused | ErrorKind::Busy | ErrorKind::NotAllowed => Problem::Refused(text),
            ErrorKind::Conflict => Problem::Conflict(text),
            ErrorKind::Database => Problem::Database(text),
            // Drift, a time limit, contention, a value that cannot be read, a failed codec, a shutdown, the operating system.
            _ => Problem::Failed(text),
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Problem::Unheard,
            _ => Problem::Failed(format!("the output cannot be written: {error}")),
        }
    }
}
