//! The declarations of this program's macros as data.

use std::time::Duration;

use fsm_core::machine::Machine;
use fsm_core::retry::{Retry, as_optional_micros};
use serde::Serialize;

use crate::catalog::{Catalog, describe_policy};
use crate::registry::{RetryEntry, VerbRef};

/// All machines and verbs that are registered in this program, in alphabetical order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schema {
    /// The machines, one for each `fsm!`.
    pub machines: Vec<MachineSchema>,
    /// The verbs, one for each `#[verb]`, including those that no machine uses.
    pub verbs: Vec<VerbSchema>,
}

/// A declared machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineSchema {
    /// The name in the database.
    pub name: String,
    /// The doc comment.
    pub docs: String,
    /// The states, starts first.
    pub states: Vec<String>,
    /// The edges, without starts and timers.
    pub edges: Vec<EdgeSchema>,
    /// The states that an instance can begin in.
    pub starts: Vec<String>,
    /// The states in which an instance is completed.
    pub ends: Vec<String>,
    /// The timers.
    pub timers: Vec<TimerSchema>,
    /// The type of the record, as written in the source; `None` without `keeps`.
    pub record: Option<String>,
}

/// An edge: from a state, on an event, to another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EdgeSchema {
    /// The state that the edge leaves.
    pub from: String,
    /// The name of the event type.
    pub event: String,
    /// The state that the edge enters.
    pub to: String,
}

/// A timer: from a state, after a time, to another state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimerSchema {
    /// The state that the timer belongs to.
    pub from: String,
    /// The time from entering the state until the timer is due. Serialised as `after_us`, in microseconds.
    #[serde(rename = "after_us", serialize_with = "as_micros")]
    pub after: Duration,
    /// The state that the timer leads to.
    pub to: String,
}

/// A registered verb.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerbSchema {
    /// The name of the function.
    pub name: String,
    /// The module of the function.
    pub module: String,
    /// The source file.
    pub file: String,
    /// The line of the function's name.
    pub line: u32,
    /// The doc comment.
    pub docs: String,
    /// The name of the event type that the verb takes.
    pub event: String,
    /// The timeout of one attempt; `None` is unlimited. Serialised as `timeout_us`, in microseconds.
    #[serde(rename = "timeout_us", with = "as_optional_micros")]
    pub timeout: Option<Duration>,
    /// The verb's own retry policy. `None` if it has none: then the machine's default applies, if there is one.
    pub retry: Option<Retry>,
}

/// Returns all machines and verbs that are registered in this program, in alphabetical order.
///
/// The linker leaves out a crate that nothing references, and with it the crate's machines. Name one of its machines to the builder
/// (`.machine::<M>()`) to include them. The list of machines is empty if two of them have the same name; the start of a runtime reports
/// that as an error.
pub fn schema() -> Schema {
    let mut machines: Vec<_> =
        Catalog::new(&[], false).map_or_else(|_| Vec::new(), |all| all.iter().map(|known| describe(&known.machine)).collect());
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    let mut verbs: Vec<_> = inventory::iter::<VerbRef>
        .into_iter()
        .map(|VerbRef(verb)| VerbSchema {
            name: verb.name.to_owned(),
            module: verb.module.to_owned(),
            file: verb.file.to_owned(),
            line: verb.line,
            docs: verb.docs.to_owned(),
            event: verb.event.to_owned(),
            timeout: verb.timeout,
            retry: match verb.retry {
                RetryEntry::Policy(policy) => Some(describe_policy(policy)),
                RetryEntry::Inherit | RetryEntry::Never => None,
            },
        })
        .collect();
    verbs.sort_by(|a, b| (&a.module, &a.name).cmp(&(&b.module, &b.name)));
    Schema { machines, verbs }
}

fn describe(machine: &Machine) -> MachineSchema {
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let edges = machine.edges.iter().filter(|edge| edge.after.is_none());
    let timers = machine.edges.iter().filter_map(|edge| Some((edge.from.clone()?, edge.after?, edge.to.clone())));
    MachineSchema {
        name: machine.name.clone(),
        docs: machine.docs.clone(),
        states: owned(machine.states().collect()),
        edges: edges.filter_map(|e| Some(EdgeSchema { from: e.from.clone()?, event: e.event.clone(), to: e.to.clone() })).collect(),
        starts: owned(machine.starts().collect()),
        ends: machine.ends.clone(),
        timers: timers.map(|(from, after, to)| TimerSchema { from, after, to }).collect(),
        record: machine.record.clone(),
    }
}

fn as_micros<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(fsm_core::time::micros(*duration))
}
