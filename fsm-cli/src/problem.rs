//! The errors of commands, with their exit codes.

use std::fmt;
use std::io;

use fsm_runtime::error::{Error, ErrorKind};

/// An error that ends a command. The exit codes are part of the command's interface.
#[derive(Debug)]
pub enum Problem {
    /// 1: any other failure.
    Failed(String),
    /// 2: the arguments are invalid.
    Usage(String),
    /// 3: the machine, verb or instance does not exist.
    NotFound(String),
    /// 4: the state of the instance does not allow the act or event.
    Refused(String),
    /// 5: the id was used for another request.
    Conflict(String),
    /// 6: the instance is in error, and `--exit-status` was given or the command waited for it.
    InError,
    /// 7: the database or its tables cannot be used.
    Database(String),
    /// 0: the reader of the output has closed it.
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

impl Problem {
    /// The problem with the number of the partition that it is in.
    pub fn of_partition(self, partition: Option<u32>) -> Problem {
        let Some(number) = partition else { return self };
        let with = |text| format!("partition {number}: {text}");
        match self {
            Problem::Failed(text) => Problem::Failed(with(text)),
            Problem::Usage(text) => Problem::Usage(with(text)),
            Problem::NotFound(text) => Problem::NotFound(with(text)),
            Problem::Refused(text) => Problem::Refused(with(text)),
            Problem::Conflict(text) => Problem::Conflict(with(text)),
            Problem::Database(text) => Problem::Database(with(text)),
            Problem::InError | Problem::Unheard => self,
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
