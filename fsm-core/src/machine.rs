//! A machine as data: what `fsm!` declares, what the database keeps of it, and what the screens draw.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::fnv1a_64;
use crate::retry::{Retry, as_optional_micros};
use crate::search::SearchField;
use crate::time::Timestamp;

/// The event type of durable timers. No user can send it.
pub const TIMEOUT: &str = "Timeout";

/// The event type for the end of all children of a group. The engine delivers it to the parent, and no user can send it.
pub const CHILDREN_ENDED: &str = "ChildrenEnded";

/// True for the event types by which children report to their parent. No user can send them.
pub fn is_of_children(event: &str) -> bool {
    event == CHILDREN_ENDED || event.starts_with("ChildEnded<") || event.starts_with("ChildFailed<")
}

/// A declared graph: states, which have the names of the verbs that enter them, and edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the database.
    pub name: String,
    /// The user's doc comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub docs: String,
    /// The verbs of the edges in the order of the edges, then verbs that only a `catch` names.
    pub verbs: Vec<Verb>,
    /// Starts first.
    pub edges: Vec<Edge>,
    /// States in which an instance is completed.
    pub ends: Vec<String>,
    /// The type of the record as written in the source; `None` without `keeps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The fields of the record by which instances are found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// The search field whose values share the slots evenly; `None` without `fair_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_by: Option<String>,
}

/// A function that carries out edges: those into the state of the same name, or internal transitions.
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
    /// The name of the limit under which its calls run; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// From a state, on an event, to a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// `None` is a start.
    pub from: Option<String>,
    /// The name of the event type.
    pub event: String,
    /// The state entered. The verb of the same name runs to enter it, unless `stays_on` names another verb.
    pub to: String,
    /// The verb of an internal transition. The instance stays in its state, so `to` equals `from`, and the timer of the state continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_on: Option<String>,
    /// True if the event does not wait for a retry of the open call, nor for an operator if the instance is in error.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupts: bool,
    /// The wait of a durable timer: the time in `from` after which the event is delivered.
    #[serde(flatten, with = "wait")]
    pub after: Option<Wait>,
}

/// The wait of a durable timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The same for all instances.
    Fixed(Duration),
    /// The result of this function of the program, which gets the record when the state is entered.
    Computed(String),
}

/// The result of the function of a computed timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The time from entering the state.
    After(Duration),
    /// The point in time. One that has passed is due at once.
    At(Timestamp),
}

impl Edge {
    /// An edge on an event, which enters a state.
    pub fn new(from: Option<&str>, event: &str, to: &str) -> Edge {
        let (from, event, to) = (from.map(str::to_owned), event.to_owned(), to.to_owned());
        Edge { from, event, to, stays_on: None, interrupts: false, after: None }
    }

    /// An internal transition: the event runs the verb, and the instance stays in the state.
    pub fn stay(state: &str, event: &str, verb: &str) -> Edge {
        Edge { stays_on: Some(verb.to_owned()), ..Edge::new(Some(state), event, state) }
    }

    /// The durable timer of a state.
    pub fn timer(from: &str, wait: Duration, to: &str) -> Edge {
        Edge { after: Some(Wait::Fixed(wait)), ..Edge::new(Some(from), TIMEOUT, to) }
    }

    /// The same edge on an event that interrupts.
    pub fn interrupting(self) -> Edge {
        Edge { interrupts: true, ..self }
    }

    /// True if the event is one that others send. A timer and the end of all children come from the engine.
    pub fn is_sent(&self) -> bool {
        self.after.is_none() && self.event != CHILDREN_ENDED
    }

    /// The verb that carries out the edge.
    pub fn verb(&self) -> &str {
        self.stays_on.as_deref().unwrap_or(&self.to)
    }
}

impl Machine {
    /// The value of a new instance for fairness; `None` for a machine without `fair_by`. All instances without the field are one group.
    pub fn first_fair_value(&self, search: &[SearchField]) -> Option<String> {
        self.fair_by.as_ref().map(|_| self.fair_value(search).unwrap_or_default())
    }

    /// The value for fairness among these search fields.
    pub fn fair_value(&self, search: &[SearchField]) -> Option<String> {
        let name = self.fair_by.as_ref()?;
        search.iter().find(|field| field.name == *name).map(|field| field.value.clone())
    }

    /// Returns the edge from a state on an event. The state `None` stands for an instance that has not started.
    pub fn edge(&self, from: Option<&str>, event: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.from.as_deref() == from && edge.event == event)
    }

    /// The timer of a state.
    pub fn timer(&self, state: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.after.is_some() && edge.from.as_deref() == Some(state))
    }

    /// True if an edge on an event that interrupts leaves the state.
    pub fn is_interruptible(&self, state: Option<&str>) -> bool {
        self.edges.iter().any(|edge| edge.interrupts && edge.from.as_deref() == state)
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
        let words = self.edges.iter().flat_map(|edge| [edge.from.as_deref().unwrap_or_default(), &edge.event, &edge.to]);
        let bytes = words.flat_map(|word| word.bytes().chain([0]));
        fnv1a_64(bytes)
    }

    /// True if the state is declared under `end`.
    pub fn is_end(&self, state: &str) -> bool {
        self.ends.iter().any(|end| end == state)
    }

    /// The event types that can be sent to an instance in this state.
    pub fn accepts(&self, from: Option<&str>) -> impl Iterator<Item = &str> {
        let from = from.map(str::to_owned);
        self.edges.iter().filter(move |edge| edge.from == from && edge.is_sent()).map(|edge| edge.event.as_str())
    }

    /// Every state, in the order of declaration.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.verbs.iter().map(|verb| verb.name.as_str()).filter(|name| self.edges.iter().any(|edge| edge.to == **name))
    }

    /// True if an instance in the state `from` is in the state `to`, or can come to it. The state `None` stands for an instance that has
    /// not started.
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

fn is_false(value: &bool) -> bool {
    !value
}

/// A wait in a definition: `after_us` is a number of microseconds, `after_fn` the name of a function.
mod wait {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Duration, Wait, as_optional_micros};

    #[derive(Serialize, Deserialize)]
    struct Fields {
        #[serde(rename = "after_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
        fixed: Option<Duration>,
        #[serde(rename = "after_fn", default, skip_serializing_if = "Option::is_none")]
        computed: Option<String>,
    }

    pub fn serialize<S: Serializer>(wait: &Option<Wait>, to: S) -> Result<S::Ok, S::Error> {
        let (fixed, computed) = match wait {
            Some(Wait::Fixed(wait)) => (Some(*wait), None),
            Some(Wait::Computed(function)) => (None, Some(function.clone())),
            None => (None, None),
        };
        Fields { fixed, computed }.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Wait>, D::Error> {
        let Fields { fixed, computed } = Fields::deserialize(from)?;
        Ok(fixed.map(Wait::Fixed).or(computed.map(Wait::Computed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_the_same_after_it_was_stored() {
        let edges = [
            (Edge::new(None, "Opened", "open"), r#"{"from":null,"event":"Opened","to":"open"}"#),
            (Edge::stay("open", "Note", "noted"), r#"{"from":"open","event":"Note","to":"open","stays_on":"noted"}"#),
            (Edge::new(Some("open"), "Cancel", "gone").interrupting(), r#"{"from":"open","event":"Cancel","to":"gone","interrupts":true}"#),
            (Edge::timer("open", Duration::from_secs(1), "gone"), r#"{"from":"open","event":"Timeout","to":"gone","after_us":1000000}"#),
            (
                Edge { after: Some(Wait::Computed("trial".into())), ..Edge::new(Some("open"), TIMEOUT, "gone") },
                r#"{"from":"open","event":"Timeout","to":"gone","after_fn":"trial"}"#,
            ),
        ];
        for (edge, text) in edges {
            assert_eq!(serde_json::to_string(&edge).unwrap(), text);
            assert_eq!(serde_json::from_str::<Edge>(text).unwrap(), edge);
        }
    }
}
