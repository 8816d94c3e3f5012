//! The events that the engine delivers to the parents of children.

use std::fmt;

use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use serde::Deserialize;

use crate::registry::Machine;
pub use fsm_store::family::{ChildCount, Relative};

/// All children have ended that the instance started while it entered its state, or in it.
///
/// A verb that takes this event stands on an edge out of that state, like a verb that takes `Timeout`. The instance takes the event when the
/// last of these children has ended: it is completed or cancelled. A child in error has not ended. If the instance is busy then, it takes the
/// event when it comes to rest in the same state, after the events of its inbox; a paused instance takes it when it is resumed.
///
/// The event comes once for these children, and it does not come if no child was started: use [`Ctx::next`](crate::context::Ctx::next) then. If
/// the instance leaves the state earlier, the event does not come either, and the history records that. Nobody can send this event.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ChildrenEnded {
    /// The name of the state in which the instance waited.
    pub state: String,
    /// The number of these children in each final state and status, in the order of machines and states.
    #[serde(default)]
    pub counts: Vec<ChildCount>,
}

impl ChildrenEnded {
    /// The number of these children.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.count).sum()
    }

    /// The number of these children that ended in a state of this name, completed or cancelled.
    pub fn in_state(&self, state: impl fmt::Display) -> u64 {
        let state = state.to_string();
        self.counts.iter().filter(|count| count.state.as_ref() == Some(&state)).map(|count| count.count).sum()
    }

    /// The number of these children with a status.
    pub fn with_status(&self, status: Status) -> u64 {
        self.counts.iter().filter(|count| count.status == status).map(|count| count.count).sum()
    }
}

/// A child of the machine `M` has ended. Each child that ends is such an event for its parent, if the parent's machine has a verb that takes it.
///
/// It is delivered like an event that the child sends: it joins the inbox of a busy parent, and it is recorded as rejected if the parent is in a
/// state that does not accept it. Each of these events costs the parent a transition: for the end of many children take [`ChildrenEnded`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(bound = "")]
pub struct ChildEnded<M: Machine> {
    /// The child's key.
    pub key: String,
    /// Its last state; `None` if it was cancelled before its first transition.
    pub state: Option<M::State>,
    /// Its status: completed or cancelled.
    pub status: Status,
    /// The time at which it ended.
    pub at: Timestamp,
}

/// A child of the machine `M` came into error. It has not ended: an operator may retry, skip or cancel it. It is delivered as [`ChildEnded`] is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(bound = "")]
pub struct ChildFailed<M: Machine> {
    /// The child's key.
    pub key: String,
    /// Its state, which the error does not change; `None` before its first transition.
    pub state: Option<M::State>,
    /// The time at which it came into error.
    pub at: Timestamp,
}
