//! Decisions: pure functions from a snapshot of one instance to all changes that are written for it.

mod begin;
pub mod complete;
pub mod family;
pub mod fire;
mod forecast;
pub mod inbox;
pub mod interrupt;
pub mod migrate;
pub mod operate;
pub mod outbox;
pub mod refusal;
pub mod schedule;
pub mod send;
mod waiting;

use std::sync::Arc;

use crate::call::Attempt;
use crate::changes::{Changes, Request, TimerChange};
use crate::ids::{CallId, SessionId};
use crate::instance::{Instance, Status};
use crate::time::Timestamp;
use inbox::Inbox;

/// The inputs of a decision that come from outside. A decision itself reads no clock and draws no random number.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext {
    /// The time.
    pub now: Timestamp,
    /// A session with a free slot. A call that is due at once is handed to it, without a claim; `None` leaves the call to the finder.
    pub grant: Option<SessionId>,
    /// An unused id, for a call that does not have an id of its own.
    pub fresh: CallId,
}

/// The snapshot of one instance, as the store read it.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceSnapshot {
    /// The row of the instance.
    pub instance: Arc<Instance>,
    /// True if the row is not in the database yet.
    pub is_new: bool,
    /// The newest attempt. Required if the instance has an open call or is in error.
    pub newest: Option<Arc<Attempt>>,
    /// The last attempt of the call that was caught. Required if the newest attempt belongs to a catch verb.
    pub caught: Option<Arc<Attempt>>,
    /// The waiting events that were read.
    pub inbox: Inbox,
    /// True if the current state has a timer.
    pub has_timer: bool,
    /// True if other events will be delivered to the instance later. Needed when a delayed event comes to an instance that has not begun.
    pub awaits_others: bool,
    /// The earlier request with the same dedup id, if there was one.
    pub request: Option<Request>,
}

impl InstanceSnapshot {
    /// A snapshot of which only the row was read.
    pub fn of(instance: impl Into<Arc<Instance>>) -> InstanceSnapshot {
        let instance = instance.into();
        InstanceSnapshot {
            instance,
            is_new: false,
            newest: None,
            caught: None,
            inbox: Inbox::default(),
            has_timer: false,
            awaits_others: false,
            request: None,
        }
    }
}

impl InstanceSnapshot {
    /// Returns the snapshot after these changes are written.
    pub fn apply(&mut self, changes: Changes) {
        self.inbox.apply(&changes);
        let row_version = if self.is_new { changes.instance.row_version } else { changes.instance.row_version + 1 };
        self.instance = Arc::new(Instance { row_version, ..changes.instance });
        self.is_new = false;
        match (changes.open, changes.close, &mut self.newest) {
            (Some(open), ..) => self.newest = Some(open.attempt),
            (None, Some(close), Some(newest)) if self.instance.status == Status::Error => {
                let ended =
                    Attempt { state: close.becomes, finished_at: Some(close.finished_at), error: close.error, ..Attempt::clone(newest) };
                *newest = Arc::new(ended);
            }
            // No decision needs an attempt whose call has ended.
            (None, Some(_), newest) => *newest = None,
            (None, None, _) => {}
        }
        for timer in &changes.timers {
            match timer {
                TimerChange::Clear => self.has_timer = false,
                TimerChange::Set(timer) if timer.state.is_some() || timer.is_wake() => self.has_timer = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod tests;
