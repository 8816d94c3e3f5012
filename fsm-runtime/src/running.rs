//! An attempt that executes in this process, and its state for other tasks.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::ids::CallId;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::guard;
use crate::progress::ProgressOfAttempt;

/// An attempt that executes in this process.
pub(crate) struct Running {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) target: InstanceKey,
    /// The value by which the machine shares its slots.
    pub(crate) fair_by: Option<String>,
    pub(crate) abort: AbortHandle,
    pub(crate) cancel: Arc<watch::Sender<bool>>,
    pub(crate) progress: Arc<ProgressOfAttempt>,
    pub(crate) phase: Phase,
    /// The error of the last failed commit of its outcome.
    pub(crate) unreported: Option<Unreported>,
}

/// The progress of an attempt in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its verb is running.
    Executing,
    /// Its verb ended, and its outcome is being written to the database.
    Ended,
    /// A shutdown released it before its verb ended.
    Released,
}

/// The reason why the outcome of an attempt is not stored yet.
#[derive(Debug, Clone)]
pub(crate) struct Unreported {
    pub(crate) tries: u32,
    pub(crate) error: String,
}

/// An attempt whose verb has ended and whose outcome could not be stored yet. The commit is retried as long as the process lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreportedAttempt {
    /// The machine of the instance.
    pub machine: String,
    /// The instance's key.
    pub key: String,
    /// The verb that ended.
    pub verb: String,
    /// The call.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of failed commits of its outcome.
    pub tries: u32,
    /// The error of the last one.
    pub error: String,
}

impl Running {
    pub(crate) fn into_task(self) -> AbortHandle {
        self.abort
    }

    /// The sender that cancels the verb.
    pub(crate) fn canceller(&self) -> Arc<watch::Sender<bool>> {
        Arc::clone(&self.cancel)
    }

    /// The attempt as it is reported, if a commit of its outcome failed.
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

/// Cancels the verb through `ctx.cancelled()`. This wakes user code, which may panic, so the caller holds no lock.
pub(crate) fn cancel(canceller: Arc<watch::Sender<bool>>) {
    let _ = guard::guarded("a waker", || canceller.send_replace(true));
}
