//! The requests of a batch, and the answers to them.

use std::sync::Arc;

use super::instance_key::InstanceKey;
use super::rows::{CachedSnapshot, FileVersion, RowSnapshot};
use crate::call::Attempt;
use crate::changes::Timer;
use crate::decide::operate::Operation;
use crate::decide::send::{Send, SendOutcome};
use crate::family::{Link, Parent};
use crate::ids::{CallId, InstanceId};
use crate::outcome::{Child, Outcome};
use crate::trace::TraceContext;

/// One request: what is to be decided about an instance.
#[derive(Debug, Clone)]
pub struct Request {
    /// The instance.
    pub target: InstanceKey,
    /// What is asked.
    pub kind: RequestKind,
    /// The trace context of the sender.
    pub trace: Option<TraceContext>,
    /// The number of times it was put back after a failed commit. If the outcome of that commit is unknown, the request may have been
    /// carried out already.
    pub tries: u32,
    /// The cached snapshot of its instance, set when its batch begins.
    pub cached: Option<CachedSnapshot>,
    /// It is decided under locks, because the row that it was decided on was outdated.
    pub takes_locks: bool,
}

/// The kinds of requests that can change an instance.
#[derive(Debug, Clone)]
pub enum RequestKind {
    /// Deliver the events of the outbox that wait for room in the inbox of this instance.
    Deliver,
    /// Carry out what follows from the ends of this instance's children.
    Family,
    /// Take an event.
    Send(Send),
    /// Close an attempt.
    Complete(Box<Report>),
    /// Fire a timer or deliver a delayed send.
    Fire(Box<Timer>),
    /// Carry out an operator's act.
    Operate(Box<Operation>),
    /// Start a child of a parent in another partition.
    StartChild(Box<(Child, Link)>),
    /// Cancel a child of this parent, which is in another partition.
    CancelChild {
        /// The parent.
        parent: Parent,
        /// The reason, for the history.
        reason: String,
    },
}

/// The outcome of an attempt, reported by the session that ran it or by the sweeper.
#[derive(Debug, Clone)]
pub struct Report {
    /// The attempt.
    pub attempt: Arc<Attempt>,
    /// Its outcome.
    pub outcome: Outcome,
    /// The attempt has a slot. The next call of the instance may continue in it.
    pub has_slot: bool,
    /// The id of the call that may follow in the same commit. Its payload is encrypted for that id.
    pub fresh: CallId,
    /// The trace context of the attempt.
    pub trace: Option<TraceContext>,
}

/// The answer to a request that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The event was taken.
    Sent {
        /// The receiver.
        instance: InstanceId,
        /// The call of the event.
        call: CallId,
        /// The event started a call, waits, or was known already.
        outcome: SendOutcome,
    },
    /// `counted` is false if the report came too late; then it changed nothing.
    Completed {
        /// The report closed the attempt.
        counted: bool,
    },
    /// The timer fired.
    Fired,
    /// The operator's act was carried out.
    Operated,
    /// True if something of the instance's family changed.
    Family {
        /// Something changed.
        changed: bool,
    },
    /// Events of the outbox were delivered.
    Delivered {
        /// The number of events that were accepted or refused.
        events: u32,
    },
}

impl Request {
    /// A request that was not tried yet.
    pub fn new(target: InstanceKey, kind: RequestKind) -> Request {
        Request { target, kind, trace: None, tries: 0, cached: None, takes_locks: false }
    }

    /// Prepares the request for the next try after a commit that failed. If its outcome is unknown, the request may have been carried out.
    pub fn put_back(&mut self) {
        self.tries = self.tries.saturating_add(1);
        self.put_back_unwritten();
    }

    /// Prepares the request for the next try when nothing of it was written. The number of tries stays: the outcome is known.
    pub fn put_back_unwritten(&mut self) {
        self.cached = None;
    }

    /// Prepares the request for the next try after its row was outdated. It is decided under locks then.
    pub fn put_back_stale(&mut self) {
        self.takes_locks = true;
        self.put_back_unwritten();
    }

    /// Returns true if one statement can probably carry out the request, without a lock while it is decided.
    pub fn is_short(&self) -> bool {
        let is_first = self.tries == 0 && !self.takes_locks;
        match &self.kind {
            RequestKind::Send(_) => is_first,
            RequestKind::Complete(report) => {
                is_first && report.outcome.is_of_one_instance() && self.cached != Some(CachedSnapshot::SomethingWaits)
            }
            _ => false,
        }
    }

    /// The cached snapshot of its instance, if it may still be valid; on SQLite, if it belongs to this file version.
    pub fn cached_snapshot(&self, file_version: Option<FileVersion>) -> Option<&RowSnapshot> {
        self.cached.as_ref()?.seen(file_version)
    }

    /// Returns all instances that the request may write.
    pub fn touches(&self) -> Vec<InstanceKey> {
        let mut touches = vec![self.target.clone()];
        if let RequestKind::Complete(report) = &self.kind {
            touches.extend(report.outcome.sends().iter().map(|send| InstanceKey::new(&send.machine, &send.key)));
            touches.extend(report.outcome.children().iter().map(|child| InstanceKey::new(&child.machine, &child.key)));
        }
        touches
    }
}
