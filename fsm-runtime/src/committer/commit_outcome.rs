//! What became of a request, once it is committed.

use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, NoteKind};
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::outcome::Problem;
use fsm_core::time::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use super::request::{InstanceKey, Reply};
use crate::error::Error;
use crate::store::claim::Claimed;
use crate::store::write::RowVersion;

/// What became of one request; true once its transaction is committed.
pub(crate) struct CommitOutcome {
    /// The answer; `None` when another process was faster and the request has to be decided once more.
    pub(crate) reply: Option<Result<Reply, Error>>,
    /// The instances that changed, as they are now.
    pub(crate) moved: Vec<ChangedInstance>,
    /// Calls that run here now.
    pub(crate) runs: Vec<Run>,
    /// The earliest moment at which one of the changes comes due.
    pub(crate) due_at: Option<Timestamp>,
    /// What followed an attempt that did not succeed.
    pub(crate) after: Option<After>,
    /// The instances for which an event waits that interrupts their executing attempt.
    pub(crate) interrupted: Vec<InstanceKey>,
    /// Those of the verb's own sends that were refused.
    pub(crate) rejected: Vec<CallId>,
    /// The instances that somebody else has locked, for which the request was left out.
    pub(crate) locked: Vec<InstanceKey>,
    /// Why a reported success was written as a failure: a required event that the verb sends was refused.
    pub(crate) refused: Option<Problem>,
    /// Events began to wait in the outbox, or still do.
    pub(crate) has_line: bool,
}

/// An instance as a commit left it.
pub(crate) struct ChangedInstance {
    pub(crate) target: InstanceKey,
    pub(crate) instance: Arc<Instance>,
    /// Its live attempt, where the commit knew it.
    pub(crate) live: Option<Arc<Attempt>>,
    /// It has a timer of its own, of its state or a wake.
    pub(crate) has_timer: bool,
    /// What will show whether it is still so, where that is known.
    pub(crate) row_version: Option<RowVersion>,
}

/// A call that runs here now.
pub(crate) struct Run {
    pub(crate) target: InstanceKey,
    pub(crate) claimed: Claimed,
    /// Its slot, unless it is the one that the request brought.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// What followed an attempt that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Another attempt is scheduled.
    Again { number: u32, at: Timestamp },
    /// No attempts are left.
    Exhausted,
    /// An event interrupted the call.
    Interrupted,
}

impl After {
    /// `None` unless the changes close an attempt that used its call's budget.
    pub(super) fn of(changes: &Changes) -> Option<After> {
        let close = changes.close.as_ref()?;
        if !matches!(close.becomes, AttemptState::Error | AttemptState::Lost) {
            return None;
        }
        if changes.notes.iter().any(|note| note.kind == NoteKind::Interrupted) {
            return Some(After::Interrupted);
        }
        match &changes.open {
            Some(open) if open.attempt.call == close.call => {
                Some(After::Again { number: open.attempt.number, at: open.attempt.scheduled_at })
            }
            _ => Some(After::Exhausted),
        }
    }
}

impl CommitOutcome {
    /// Nothing follows from it yet.
    pub(super) fn of(reply: Option<Result<Reply, Error>>) -> CommitOutcome {
        CommitOutcome {
            reply,
            moved: Vec::new(),
            runs: Vec::new(),
            due_at: None,
            after: None,
            interrupted: Vec::new(),
            rejected: Vec::new(),
            refused: None,
            has_line: false,
            locked: Vec::new(),
        }
    }

    /// A guard found the row other than it was read. A report is answered; whoever asks for something asks again.
    pub(super) fn outdated(&mut self) {
        self.reply = match self.reply.take() {
            Some(Ok(Reply::Completed { .. })) => Some(Ok(Reply::Completed { counted: false })),
            Some(Ok(Reply::Fired)) => Some(Ok(Reply::Fired)),
            _ => None,
        };
    }
}
