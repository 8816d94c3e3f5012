//! Every registered entry as data: what the macros of this program declared.

use std::time::Duration;

use fsm_core::machine::Machine;
use fsm_core::retry::{Retry, as_optional_micros};
use serde::Serialize;

use crate::catalog::{Catalog, describe_policy};
use crate::registry::{RetryEntry, VerbRef};

/// All machines and verbs that are registered in this program, by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schema {
    /// Every `fsm!`.
    pub machines: Vec<MachineSchema>,
    /// Every `#[verb]`, whether or not a machine names it.
    pub verbs: Vec<VerbSchema>,
}

/// A declared graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineSchema {
    /// Its name in the database.
    pub name: String,
    /// Its doc comment.
    pub docs: String,
    /// Every state, starts first.
    pub states: Vec<String>,
    /// Every edge, without starts and timers.
    pub edges: Vec<EdgeSchema>,
    /// The states an instance can begin in.
    pub starts: Vec<String>,
    /// The states in which it is completed.
    pub ends: Vec<String>,
    /// The edges that time takes.
    pub timers: Vec<TimerSchema>,
    /// The type of the instance's own data, as written.
    pub record: Option<String>,
}

/// From a state, on an event, to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EdgeSchema {
    /// The state it leaves.
    pub from: String,
    /// The event type.
    pub event: String,
    /// The state it enters.
    pub to: String,
}

/// From a state, after a while, to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimerSchema {
    /// The state it leaves.
    pub from: String,
    /// How long the instance rests there before.
    #[serde(rename = "after_us", serialize_with = "as_micros")]
    pub after: Duration,
    /// The state it enters.
    pub to: String,
}

/// A registered verb.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerbSchema {
    /// The function's name.
    pub name: String,
    /// The module it stands in.
    pub module: String,
    /// The file it stands in.
    pub file: String,
    /// The line of its name.
    pub line: u32,
    /// Its doc comment.
    pub docs: String,
    /// The event type it takes.
    pub event: String,
    /// The limit on one attempt.
    #[serde(rename = "timeout_us", with = "as_optional_micros")]
    pub timeout: Option<Duration>,
    /// Its own retry policy; `None` where the machine's default applies, or none.
    pub retry: Option<Retry>,
}

/// Every registered entry of this program, in alphabetical order.
///
/// Entries of a crate that nothing references are not linked, and so not seen: name a machine of it to the builder.
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
