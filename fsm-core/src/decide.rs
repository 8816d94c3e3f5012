//! Decisions: pure functions from a snapshot of one instance to all changes that are written for it.

mod begin;
pub mod fire;
pub mod inbox;
pub mod migrate;
pub mod operate;
pub mod refusal;
pub mod send;
pub mod settle;

use std::sync::Arc;

use crate::call::Attempt;
use crate::changes::Request;
use crate::ids::{CallId, SessionId};
use crate::instance::Instance;
use crate::time::Timestamp;
use inbox::Inbox;

/// The inputs of a decision that come from outside. A decision itself reads no clock and draws no random number.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// A session with a free slot. A call that is due at once is handed to it, without a claim; `None` leaves the call to the finder.
    pub grant: Option<SessionId>,
    /// An unused id, for a call that does not have an id of its own.
    pub fresh: CallId,
}

/// The snapshot of one instance, as the store read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The row of the instance.
    pub instance: Arc<Instance>,
    /// True if the row is not in the database yet.
    pub is_new: bool,
    /// The newest attempt. Required if the instance has an open call or is in error.
    pub newest: Option<Arc<Attempt>>,
    /// The last attempt of the call that was caught. Required if the newest attempt belongs to a catch verb.
    pub caught: Option<Attempt>,
    /// The waiting events that were read.
    pub inbox: Inbox,
    /// True if the current state has a timer.
    pub has_timer: bool,
    /// The earlier request with the same deduplication id, if there was one.
    pub request: Option<Request>,
}

impl Standing {
    /// A snapshot of which only the row is known.
    pub fn of(instance: impl Into<Arc<Instance>>) -> Standing {
        let instance = instance.into();
        Standing { instance, is_new: false, newest: None, caught: None, inbox: Inbox::default(), has_timer: false, request: None }
    }
}

#[cfg(test)]
mod found;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting;
