//! A machine as data: what `fsm!` declares, what the database keeps of it, and what the screens draw.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::{Retry, as_optional_micros};

/// The event type of durable timers. No user can send it.
pub const TIMEOUT: &str = "Timeout";

/// A declared graph: states named by the verbs that enter them, and the edges between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the database.
    pub name: String,
    /// The user's doc comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
    /// One for each state, then those that are only named by a `catch`.
    pub verbs: Vec<Verb>,
    /// Starts first.
    pub edges: Vec<Edge>,
    /// States in which an instance is completed.
    pub ends: Vec<String>,
    /// The type of the instance's own data, as written, if the machine keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

/// The function that carries out the edges into the state of its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verb {
    /// Unique within the machine.
    pub name: String,
    /// The name of the event type it takes.
    pub event: String,
    /// The limit on one attempt.
    #[serde(rename = "timeout_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
    pub timeout: Option<Duration>,
    /// Its own policy, else the machine's default, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// From a state, on an event, to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// `None` is a start.
    pub from: Option<String>,
    /// The name of the event type.
    pub event: String,
    /// The state entered, and the verb that is run to enter it.
    pub to: String,
    /// A durable timer: how long the instance rests in `from` before the event is delivered by itself.
    #[serde(rename = "after_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
    pub after: Option<Duration>,
}

impl Machine {
    /// The edge that an event takes out of a state; `None` as state is an instance that has not begun.
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

    /// Whether the code that declares this has the state.
    pub fn has_state(&self, state: &str) -> bool {
        self.edges.iter().any(|edge| edge.to == state)
    }

    /// Whether the code that declares this has the event.
    pub fn has_event(&self, event: &str) -> bool {
        self.edges.iter().any(|edge| edge.event == event)
    }

    /// A number by which two declarations of the same ways are known: FNV-1a over the edges.
    pub fn graph(&self) -> u64 {
        let words = |edge: &'_ Edge| [edge.from.clone().unwrap_or_default(), edge.event.clone(), edge.to.clone()];
        let bytes = self.edges.iter().flat_map(words).flat_map(|word| [word.into_bytes(), vec![0]]).flatten();
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// Whether nothing leaves the state by declaration.
    pub fn is_end(&self, state: &str) -> bool {
        self.ends.iter().any(|end| end == state)
    }

    /// The events that can be sent to an instance in this state.
    pub fn accepts(&self, from: Option<&str>) -> impl Iterator<Item = &str> {
        let from = from.map(str::to_owned);
        self.edges.iter().filter(move |edge| edge.from == from && edge.after.is_none()).map(|edge| edge.event.as_str())
    }

    /// Every state, in the order in which they are declared.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.verbs.iter().map(|verb| verb.name.as_str()).filter(|name| self.edges.iter().any(|edge| edge.to == **name))
    }

    /// The states an instance can begin in.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        self.edges.iter().filter(|edge| edge.from.is_none()).map(|edge| edge.to.as_str())
    }
}
