//! What happens next: pure functions from what is known about one instance to all that is written about it.

mod begin;
pub mod fire;
pub mod inbox;
pub mod migrate;
pub mod operate;
pub mod refusal;
pub mod room;
pub mod send;
pub mod settle;

use std::sync::Arc;

use crate::call::Attempt;
use crate::changes::{Changes, Request, TimerChange};
use crate::ids::{CallId, SessionId};
use crate::instance::Instance;
use crate::time::Timestamp;
use inbox::Inbox;

/// What a decision takes from the world: it reads no clock and draws no lots.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// A session with a free slot, which a due call is given to at once (the hand-off).
    pub grant: Option<SessionId>,
    /// An unused id, for a call that has none of its own.
    pub fresh: CallId,
}

/// What the store knows of one instance, read under its lock.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Its row.
    pub instance: Arc<Instance>,
    /// The row is not in the database yet.
    pub is_new: bool,
    /// Its newest attempt; needed when the instance is open or in error.
    pub newest: Option<Arc<Attempt>>,
    /// The last attempt of the call that the newest one caught; needed when that is a catch verb's.
    pub caught: Option<Attempt>,
    /// What waits, as far as it was read.
    pub inbox: Inbox,
    /// It has a timer of its state.
    pub has_timer: bool,
    /// Other events are still to be delivered to it later; needed when a delayed event comes to an instance that has not begun.
    pub awaits_others: bool,
    /// The request with the same dedup id, if there was one.
    pub request: Option<Request>,
}

impl Standing {
    /// An instance of which only the row is known.
    pub fn of(instance: impl Into<Arc<Instance>>) -> Standing {
        let instance = instance.into();
        Standing {
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

impl Standing {
    /// The same once these changes are written.
    pub fn apply(&mut self, changes: Changes) {
        self.inbox.apply(&changes);
        self.instance = Arc::new(changes.instance);
        self.is_new = false;
        if let Some(open) = changes.open {
            self.newest = Some(open.attempt);
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
mod found;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting;
