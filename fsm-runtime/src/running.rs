//! An attempt that executes in this process, as the others see it.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::ids::CallId;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::committer::request::InstanceKey;
use crate::guard;

/// An attempt that executes in this process.
pub(crate) struct Running {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) target: InstanceKey,
    pub(crate) abort: AbortHandle,
    pub(crate) cancel: Arc<watch::Sender<bool>>,
    pub(crate) phase: Phase,
    /// Why its end is not in the database yet, once a commit of it failed.
    pub(crate) unreported: Option<Unreported>,
}

/// How far an attempt has come in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its verb runs.
    Executing,
    /// Its verb ended: the outcome is decided, and on its way to the database.
    Ended,
    /// A shutdown released it before its verb ended.
    Released,
}

/// Why the end of an attempt is not in the database yet.
#[derive(Debug, Clone)]
pub(crate) struct Unreported {
    pub(crate) tries: u32,
    pub(crate) error: String,
}

/// An attempt whose verb has ended, and whose outcome could not be written to the database yet. It is retried for as long as the process
/// lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreportedAttempt {
    /// The machine of its instance.
    pub machine: String,
    /// The instance's key.
    pub key: String,
    /// The verb that ended.
    pub verb: String,
    /// The call.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How many commits of its outcome failed.
    pub tries: u32,
    /// Why the last one did.
    pub error: String,
}

impl Running {
    pub(crate) fn into_task(self) -> AbortHandle {
        self.abort
    }

    /// What lets the verb know that its end is wanted.
    pub(crate) fn canceller(&self) -> Arc<watch::Sender<bool>> {
        Arc::clone(&self.cancel)
    }

    /// Its outcome, if that could not be written yet.
    pub(crate) fn unreported(&self) -> Option<UnreportedAttempt> {
        let Unreported { tries, error } = self.unreported.clone()?;
        Some(UnreportedAttempt {
            machine: self.target.machine.to_string(),
            key: self.target.key.to_string(),
            verb: self.attempt.verb.clone(),
            call: self.attempt.call,
            attempt: self.attempt.number,
            tries,
            error,
        })
    }
}

/// Lets a verb know that its end is wanted. It wakes what the verb waits with, which may panic: no lock is held meanwhile.
pub(crate) fn cancel(canceller: Arc<watch::Sender<bool>>) {
    let _ = guard::guarded("a waker", || canceller.send_replace(true));
}
