//! The public error type, with a kind for each case that a caller can act on.

use std::fmt;
use std::sync::Arc;

use fsm_core::decide::refusal::Refusal;
use fsm_store::error::StoreError;

/// An error of a request. The text says what failed, on which instance or value, and what would have worked.
pub struct Error(Box<Kind>);

/// The kind of an error: one for each case that a caller can act on. More kinds may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The event does not fit the state of the instance.
    Refused,
    /// The instance is busy and the sender did not want to wait, or its inbox is full.
    Busy,
    /// An earlier request with the same deduplication id had other content, or the rows of an import already exist.
    Conflict,
    /// There is no such instance.
    NotFound,
    /// The operator's act is not allowed now.
    NotAllowed,
    /// An argument or a setting is invalid, independent of the database's content.
    Input,
    /// Rows in the database need states, verbs or events that the code lacks, and no mapping names a replacement.
    Drift,
    /// The request did not finish in the given time.
    TimedOut,
    /// Other processes kept changing the same instance at the same time. The same request may succeed when it is repeated.
    Contended,
    /// The runtime is shutting down, or did not shut down completely.
    Stopping,
    /// The database is unreachable, returned an error, or cannot be used by this version.
    Database,
    /// A stored value cannot be read by this program: a record or payload that does not decode, or a state that the code lacks.
    Unreadable,
    /// The payload codec failed.
    Codec,
    /// The operating system refused a thread or a signal handler.
    System,
    /// A bug of this crate.
    Internal,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// The state of the instance does not allow the request.
    Refused(Refusal),
    /// An error of the database.
    Store(Arc<StoreError>),
    /// The process is shutting down.
    Stopping,
    /// Any other error, with its text.
    Other(ErrorKind, String),
}

impl Error {
    pub(crate) fn other(kind: ErrorKind, text: impl Into<String>) -> Error {
        Kind::Other(kind, text.into()).into()
    }

    pub(crate) fn input(text: impl Into<String>) -> Error {
        Error::other(ErrorKind::Input, text)
    }

    pub(crate) fn not_found(machine: &str, key: &str) -> Error {
        Error::other(ErrorKind::NotFound, format!("there is no `{machine}` `{}`", key.escape_debug()))
    }

    pub(crate) fn not_served(machine: &str, served: &[String]) -> Error {
        Error::input(format!("this process serves no machine \"{machine}\"; it has {}", served.join(", ")))
    }

    pub(crate) fn stopping() -> Error {
        Kind::Stopping.into()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        matches!(*self.0, Kind::Stopping)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(&*self.0, Kind::Store(error) if matches!(**error, StoreError::Interrupted))
    }

    pub(crate) fn cause(&self) -> &Kind {
        &self.0
    }

    /// Returns true if the error is known to be transient, so that a retry may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(&*self.0, Kind::Store(error) if error.is_transient())
    }

    /// The kind of this error. The predicates compare it.
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Kind::Refused(Refusal::Unfit(_)) => ErrorKind::Refused,
            Kind::Refused(Refusal::Busy { .. }) => ErrorKind::Busy,
            Kind::Refused(Refusal::Conflict { .. }) => ErrorKind::Conflict,
            Kind::Refused(Refusal::NotAllowed { .. }) => ErrorKind::NotAllowed,
            Kind::Store(error) if matches!(**error, StoreError::ConcurrentChange) => ErrorKind::Contended,
            Kind::Store(error) if matches!(**error, StoreError::SelfDeadlock) => ErrorKind::Input,
            Kind::Store(_) => ErrorKind::Database,
            Kind::Stopping => ErrorKind::Stopping,
            Kind::Other(kind, _) => *kind,
        }
    }

    /// The event does not fit the state of the instance.
    pub fn is_refused(&self) -> bool {
        self.kind() == ErrorKind::Refused
    }

    /// The instance is busy and the sender did not want to wait, or its inbox is full.
    pub fn is_busy(&self) -> bool {
        self.kind() == ErrorKind::Busy
    }

    /// An earlier request with the same deduplication id had other content, or the rows of an import already exist.
    pub fn is_conflict(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// There is no such instance.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// The operator's act is not allowed now.
    pub fn is_not_allowed(&self) -> bool {
        self.kind() == ErrorKind::NotAllowed
    }

    /// The database is unreachable, returned an error, or cannot be used by this version.
    pub fn is_database(&self) -> bool {
        self.kind() == ErrorKind::Database
    }

    /// An argument or a setting is invalid, independent of the database's content.
    pub fn is_input(&self) -> bool {
        self.kind() == ErrorKind::Input
    }

    /// Rows in the database need states, verbs or events that the code lacks, and no mapping names a replacement.
    pub fn is_drift(&self) -> bool {
        self.kind() == ErrorKind::Drift
    }

    /// The request did not finish in the given time.
    pub fn is_timed_out(&self) -> bool {
        self.kind() == ErrorKind::TimedOut
    }

    /// Other processes kept changing the same instance at the same time.
    pub fn is_contended(&self) -> bool {
        self.kind() == ErrorKind::Contended
    }

    /// A stored value cannot be read by this program.
    pub fn is_unreadable(&self) -> bool {
        self.kind() == ErrorKind::Unreadable
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

/// Shared, because one error can fail several requests.
impl From<Arc<StoreError>> for Error {
    fn from(error: Arc<StoreError>) -> Error {
        Kind::Store(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Refused(refusal) => refusal.fmt(f),
            Kind::Other(_, text) => f.write_str(text),
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
