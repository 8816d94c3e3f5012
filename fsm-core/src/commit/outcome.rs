//! The commit outcome: the result of a request after its batch was committed.

use std::sync::Arc;

use super::environment::Environment;
use super::instance_key::InstanceKey;
use super::request::Reply;
use super::rows::{CachedSnapshot, RowSnapshot, RowVersion};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind};
use crate::decide::refusal::Refusal;
use crate::ids::{CallId, InstanceId};
use crate::instance::{Instance, Status};
use crate::outcome::Problem;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// The result of one request. It is valid only once its transaction is committed.
pub struct CommitOutcome<E: Environment> {
    /// The answer; `None` if another process changed the instance first and the request has to be decided again.
    pub reply: Option<Result<Reply, E::Refused>>,
    /// The changed instances, in their new state.
    pub moved: Vec<ChangedInstance>,
    /// The calls that run in this process from now on.
    pub runs: Vec<Run<E::Slot>>,
    /// The earliest time at which one of the changes comes due.
    pub due_at: Option<Timestamp>,
    /// The consequence of an attempt that did not succeed.
    pub after: Option<After>,
    /// The instances for which an event waits that interrupts their executing attempt.
    pub interrupted: Vec<InstanceKey>,
    /// The events from verbs that their receivers refused: those that this verb sent, or those of the delivered line.
    pub rejected: Vec<RejectedEvent>,
    /// The instances that another transaction has locked. The request was left out because of them.
    pub locked: Vec<InstanceKey>,
    /// Why a reported success was written as a failure: a required event that the verb sends was refused.
    pub refused: Option<Problem>,
    /// Events wait in the outbox after this request.
    pub has_line: bool,
    /// Events for instances of other partitions wait in the outbox of this partition after this request.
    pub has_event_elsewhere: bool,
    /// The instances whose children are to be looked at, because one was started.
    pub families: Vec<InstanceId>,
    /// The request was decided on an outdated row and nothing of it was written. It is decided again, under locks.
    pub is_stale: bool,
}

/// An instance as a commit left it.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedInstance {
    /// The instance.
    pub target: InstanceKey,
    /// Its row.
    pub instance: Arc<Instance>,
    /// Its newest attempt, if that is open or exhausted.
    pub newest: Option<Arc<Attempt>>,
    /// The instance has a timer of its own: of its state, or a wake.
    pub has_timer: bool,
    /// The version that shows later whether the instance is unchanged, if it is known.
    pub row_version: Option<RowVersion>,
}

impl ChangedInstance {
    /// The entry for the snapshot cache, if the next request for the instance is likely to come to this process. `executes_here` says that
    /// its open attempt executes in this process.
    pub fn cached(&self, executes_here: impl FnOnce() -> bool) -> Option<CachedSnapshot> {
        let ChangedInstance { instance, newest, has_timer, row_version, .. } = self;
        if instance.status != Status::Running || (instance.is_open && !executes_here()) {
            return None;
        }
        let seen = row_version.map(|row_version| RowSnapshot {
            instance: Arc::clone(instance),
            newest: newest.clone(),
            has_timer: *has_timer,
            row_version,
        });
        CachedSnapshot::of(instance, seen)
    }
}

/// A call that runs in this process from now on.
pub struct Run<S> {
    /// The instance.
    pub target: InstanceKey,
    /// Its row.
    pub instance: Arc<Instance>,
    /// The attempt. It executes.
    pub attempt: Arc<Attempt>,
    /// The payload of its call.
    pub payload: Vec<u8>,
    /// The trace context of the call, as far as it is known.
    pub trace: TraceOfCall,
    /// The call's slot, unless it uses the slot of the request.
    pub slot: Option<S>,
}

/// The trace context of a call that executes, as far as its process knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceOfCall {
    /// It is in the database, if the call has one.
    Stored,
    /// The commit that made the call has it.
    Known(Option<TraceContext>),
}

/// An event from a verb that its receiver refused.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectedEvent {
    /// The receiver.
    pub target: InstanceKey,
    /// The name of the event.
    pub event: String,
    /// The call that it would have become.
    pub call: CallId,
    /// Why it is refused.
    pub refusal: Refusal,
}

/// The consequence of an attempt that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Another attempt is scheduled.
    Again {
        /// Its number.
        number: u32,
        /// The time at which it is due.
        at: Timestamp,
    },
    /// No attempts are left.
    Exhausted,
    /// An event interrupted the call.
    Interrupted,
}

impl After {
    /// `None` unless the changes close an attempt that used its call's budget.
    pub fn of(changes: &Changes) -> Option<After> {
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

impl<E: Environment> CommitOutcome<E> {
    /// An outcome with this reply and no consequences.
    pub(super) fn of(reply: Option<Result<Reply, E::Refused>>) -> CommitOutcome<E> {
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
            has_event_elsewhere: false,
            families: Vec::new(),
            is_stale: false,
            locked: Vec::new(),
        }
    }

    /// The request was decided on an outdated row. It keeps its number of tries: nothing of it was written.
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
