//! The commit outcome: the result of a request after its batch was committed.

use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, NoteKind};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use fsm_core::outcome::Problem;
use fsm_core::time::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use super::request::{InstanceKey, Reply};
use crate::error::Error;
use crate::store::claim::Claimed;
use crate::store::write::RowVersion;

/// The result of one request. It is valid only once its transaction is committed.
pub(crate) struct CommitOutcome {
    /// The answer; `None` if another process changed the instance first and the request has to be decided again.
    pub(crate) reply: Option<Result<Reply, Error>>,
    /// The changed instances, in their new state.
    pub(crate) moved: Vec<ChangedInstance>,
    /// The calls that run in this process from now on.
    pub(crate) runs: Vec<Run>,
    /// The earliest time at which one of the changes comes due.
    pub(crate) due_at: Option<Timestamp>,
    /// The consequence of an attempt that did not succeed.
    pub(crate) after: Option<After>,
    /// The instances for which an event waits that interrupts their executing attempt.
    pub(crate) interrupted: Vec<InstanceKey>,
    /// The sends of the verb that were refused.
    pub(crate) rejected: Vec<CallId>,
    /// The instances that another transaction has locked. The request was left out because of them.
    pub(crate) locked: Vec<InstanceKey>,
    /// Why a reported success was written as a failure: a required event that the verb sends was refused.
    pub(crate) refused: Option<Problem>,
    /// Events wait in the outbox after this request.
    pub(crate) has_line: bool,
    /// The instances whose children are to be looked at, because one was started.
    pub(crate) families: Vec<InstanceId>,
    /// The request was decided on an outdated row and nothing of it was written. It is decided again, under locks.
    pub(crate) is_stale: bool,
}

/// An instance as a commit left it.
pub(crate) struct ChangedInstance {
    pub(crate) target: InstanceKey,
    pub(crate) instance: Arc<Instance>,
    /// Its newest attempt, if that is open or exhausted.
    pub(crate) newest: Option<Arc<Attempt>>,
    /// The instance has a timer of its own: of its state, or a wake.
    pub(crate) has_timer: bool,
    /// The version that shows later whether the instance is unchanged, if it is known.
    pub(crate) row_version: Option<RowVersion>,
}

/// A call that runs in this process from now on.
pub(crate) struct Run {
    pub(crate) target: InstanceKey,
    pub(crate) claimed: Claimed,
    /// The call's slot, unless it uses the slot of the request.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// The consequence of an attempt that did not succeed.
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
    /// An outcome with this reply and no consequences.
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
            families: Vec::new(),
            is_stale: false,
            locked: Vec::new(),
        }
    }

    /// The request was decided on an outdated row. It keeps its number of tries: nothing of it was written.
    #[cfg(feature = "postgres")]
    pub(super) fn stale(&mut self) {
        self.reply = None;
        self.is_stale = true;
    }

    /// A guard found that the row had changed. A completion or a timer is answered as not counted or as fired; every other request is
    /// decided again.
    pub(super) fn outdated(&mut self) {
        self.reply = match self.reply.take() {
            Some(Ok(Reply::Completed { .. })) => Some(Ok(Reply::Completed { counted: false })),
            Some(Ok(Reply::Fired)) => Some(Ok(Reply::Fired)),
            _ => None,
        };
    }
}
