//! A machine as data: what `fsm!` declares, what the database keeps of it, and what the screens draw.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::fnv1a_64;
use crate::retry::{Retry, as_optional_micros};

/// The event type of durable timers. No user can send it.
pub const TIMEOUT: &str = "Timeout";

/// A declared graph: states, which have the names of the verbs that enter them, and edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the database.
    pub name: String,
    /// The user's doc comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
    /// One verb for each state, then verbs that only a `catch` names.
    pub verbs: Vec<Verb>,
    /// Starts first.
    pub edges: Vec<Edge>,
    /// States in which an instance is completed.
    pub ends: Vec<String>,
    /// The type of the record as written in the source; `None` without `keeps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

/// The function that carries out the edges into the state of the same name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verb {
    /// Unique within the machine.
    pub name: String,
    /// The name of its event type.
    pub event: String,
    /// The limit on one attempt.
    #[serde(rename = "timeout_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
    pub timeout: Option<Duration>,
    /// The retry policy: the verb's own, else the machine's default, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// From a state, on an event, to a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// `None` is a start.
    pub from: Option<String>,
    /// The name of the event type.
    pub event: String,
    /// The state entered, and the verb that is run to enter it.
    pub to: String,
    /// The duration of a durable timer: the time in `from` after which the event is delivered.
    #[serde(rename = "after_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
    pub after: Option<Duration>,
}

impl Machine {
    /// The edge from a state on an event. The state `None` stands for an instance that has not started.
    pub fn edge(&self, from: Option<&str>, event: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.from.as_deref() == from && edge.event == event)
    }

    /// The timer of a state.
    pub fn timer(&self, state: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.after.is_some() && edge.from.as_deref() == Some(state))
    }

    /// The verb of this name.
    pub fn verb(&self, name: &str) -> Option<&Verb> {
        self.verbs.iter().find(|verb| verb.name == name)
    }

    /// True if the machine has this state.
    pub fn has_state(&self, state: &str) -> bool {
        self.edges.iter().any(|edge| edge.to == state)
    }

    /// True if the machine has this event type.
    pub fn has_event(&self, event: &str) -> bool {
        self.edges.iter().any(|edge| edge.event == event)
    }

    /// A fingerprint of the edges.
    pub fn graph(&self) -> u64 {
        let words = |edge: &'_ Edge| [edge.from.clone().unwrap_or_default(), edge.event.clone(), edge.to.clone()];
        let bytes = self.edges.iter().flat_map(words).flat_map(|word| [word.into_bytes(), vec![0]]).flatten();
        fnv1a_64(bytes)
    }

    /// True if the state is declared under `end`.
    pub fn is_end(&self, state: &str) -> bool {
        self.ends.iter().any(|end| end == state)
    }

    /// The event types that can be sent to an instance in this state.
    pub fn accepts(&self, from: Option<&str>) -> impl Iterator<Item = &str> {
        let from = from.map(str::to_owned);
        self.edges.iter().filter(move |edge| edge.from == from && edge.after.is_none()).map(|edge| edge.event.as_str())
    }

    /// Every state, in the order of declaration.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.verbs.iter().map(|verb| verb.name.as_str()).filter(|name| self.edges.iter().any(|edge| edge.to == **name))
    }

    /// True if an instance in the state `from` is in the state `to`, or can come to it. The state `None` stands for an instance that has not
    /// started.
    pub fn can_reach(&self, from: Option<&str>, to: &str) -> bool {
        let mut reached: Vec<Option<&str>> = vec![from];
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            if state == Some(to) {
                return true;
            }
            for edge in self.edges.iter().filter(|edge| edge.from.as_deref() == state) {
                if !reached.contains(&Some(edge.to.as_str())) {
                    reached.push(Some(edge.to.as_str()));
                }
            }
            next += 1;
        }
        false
    }

    /// The states in which an instance can start.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        self.edges.iter().filter(|edge| edge.from.is_none()).map(|edge| edge.to.as_str())
    }
}
