//! The one error that users of handles and runtimes see, with a predicate for each thing a caller can act on.

use std::fmt;
use std::sync::Arc;

use fsm_core::decide::refusal::Refusal;

use crate::store::error::StoreError;

/// Why a request was not carried out. The text says what, which, and what would have worked.
pub struct Error(Box<Kind>);

#[derive(Debug)]
pub(crate) enum Kind {
    /// The instance as it stands does not allow it.
    Refused(Refusal),
    /// There is no such instance.
    NotFound(String),
    /// What was asked for cannot be, whatever the database holds: a key, a payload, a setting.
    Input(String),
    /// Rows need what the code lacks.
    Drift(String),
    /// There is something already where this was to be written.
    Taken(String),
    /// It did not happen in the time that was given.
    TimedOut(String),
    /// The process stops.
    Stopping,
    /// The database.
    Store(Arc<StoreError>),
}

impl Error {
    pub(crate) fn input(text: impl Into<String>) -> Error {
        Kind::Input(text.into()).into()
    }

    pub(crate) fn not_found(machine: &str, key: &str) -> Error {
        Kind::NotFound(format!("there is no `{machine}` `{}`", key.escape_debug())).into()
    }

    pub(crate) fn not_served(machine: &str, served: &[String]) -> Error {
        Error::input(format!("this process serves no machine \"{machine}\"; it has {}", served.join(", ")))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        matches!(*self.0, Kind::Stopping)
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }

    /// The event does not fit the state of the instance.
    pub fn is_refused(&self) -> bool {
        matches!(*self.0, Kind::Refused(Refusal::Unfit(_)))
    }

    /// The instance is busy and the sender would not wait, or its inbox is full.
    pub fn is_busy(&self) -> bool {
        matches!(*self.0, Kind::Refused(Refusal::Busy { .. }))
    }

    /// The same dedup id named a request with other content before; or what was to be imported is there already.
    pub fn is_conflict(&self) -> bool {
        matches!(*self.0, Kind::Refused(Refusal::Conflict { .. }) | Kind::Taken(_))
    }

    /// There is no such instance.
    pub fn is_not_found(&self) -> bool {
        matches!(*self.0, Kind::NotFound(_))
    }

    /// What the operator asked for is not allowed now.
    pub fn is_not_allowed(&self) -> bool {
        matches!(*self.0, Kind::Refused(Refusal::NotAllowed { .. }))
    }

    /// The database cannot be reached, refused, or is not one that this version can use.
    pub fn is_database(&self) -> bool {
        matches!(*self.0, Kind::Store(_))
    }

    /// What was asked for cannot be, whatever the database holds.
    pub fn is_input(&self) -> bool {
        matches!(*self.0, Kind::Input(_))
    }

    /// Rows in the database need states, verbs or events that the code lacks, and no mapping says what takes their place.
    pub fn is_drift(&self) -> bool {
        matches!(*self.0, Kind::Drift(_))
    }

    /// What was waited for did not happen in time.
    pub fn is_timed_out(&self) -> bool {
        matches!(*self.0, Kind::TimedOut(_))
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Error {
        Error(Box::new(kind))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Kind::Refused(refusal).into()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Kind::Store(Arc::new(error)).into()
    }
}

/// Several requests may have failed by the same error.
impl From<Arc<StoreError>> for Error {
    fn from(error: Arc<StoreError>) -> Error {
        Kind::Store(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Refused(refusal) => refusal.fmt(f),
            Kind::NotFound(text) | Kind::Input(text) | Kind::Drift(text) | Kind::Taken(text) | Kind::TimedOut(text) => f.write_str(text),
            Kind::Stopping => f.write_str("the runtime is shutting down; send again to another process, or after the restart"),
            Kind::Store(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Refused(refusal) => Some(refusal),
            Kind::Store(error) => error.source(),
            _ => None,
        }
    }
}
