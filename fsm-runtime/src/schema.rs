//! The declarations of this program's macros as data.

use std::time::Duration;

use fsm_core::machine::{Edge, Machine, Wait};
use fsm_core::retry::{Retry, as_optional_micros};
use serde::Serialize;

use crate::catalog::{Catalog, describe_policy};
use crate::registry::{RetryEntry, Run, VerbRef};

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
    /// The edges, without starts, timers and internal transitions.
    pub edges: Vec<EdgeSchema>,
    /// The internal transitions.
    pub stays: Vec<StaySchema>,
    /// The states that an instance can begin in.
    pub starts: Vec<String>,
    /// The states in which an instance is completed.
    pub ends: Vec<String>,
    /// The timers with a fixed wait.
    pub timers: Vec<TimerSchema>,
    /// The timers whose wait a function computes.
    pub computed_timers: Vec<ComputedTimerSchema>,
    /// The type of the record, as written in the source; `None` without `keeps`.
    pub record: Option<String>,
    /// The fields of the record by which instances are found.
    pub search: Vec<String>,
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
    /// True if the event does not wait for a retry, nor for an operator.
    pub interrupts: bool,
}

/// An internal transition: in a state, an event runs a verb, and the instance stays in the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaySchema {
    /// The state.
    pub state: String,
    /// The name of the event type.
    pub event: String,
    /// The verb.
    pub verb: String,
}

/// A timer whose wait a function of the record computes when the state is entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComputedTimerSchema {
    /// The state that the timer belongs to.
    pub from: String,
    /// The function, as written in the source.
    pub function: String,
    /// The state that the timer leads to.
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
    /// The name of the limit under which the verb's calls run.
    pub limit: Option<String>,
    /// The time after which an attempt that has shown no progress ends. Serialised as `heartbeat_us`, in microseconds.
    #[serde(rename = "heartbeat_us", with = "as_optional_micros")]
    pub heartbeat: Option<Duration>,
    /// True if the verb is a plain function that blocks its thread.
    pub is_blocking: bool,
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
            limit: verb.limit.map(str::to_owned),
            heartbeat: verb.heartbeat,
            is_blocking: matches!(verb.run, Run::Blocking(_)),
        })
        .collect();
    verbs.sort_by(|a, b| (&a.module, &a.name).cmp(&(&b.module, &b.name)));
    Schema { machines, verbs }
}

fn describe(machine: &Machine) -> MachineSchema {
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let (mut edges, mut stays, mut timers, mut computed_timers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for edge in &machine.edges {
        let Edge { from: Some(from), event, to, stays_on, interrupts, after } = edge.clone() else { continue };
        match (after, stays_on) {
            (Some(Wait::Fixed(after)), _) => timers.push(TimerSchema { from, after, to }),
            (Some(Wait::Computed(function)), _) => computed_timers.push(ComputedTimerSchema { from, function, to }),
            (None, Some(verb)) => stays.push(StaySchema { state: from, event, verb }),
            (None, None) => edges.push(EdgeSchema { from, event, to, interrupts }),
        }
    }
    MachineSchema {
        name: machine.name.clone(),
        docs: machine.docs.clone(),
        states: owned(machine.states().collect()),
        edges,
        stays,
        starts: owned(machine.starts().collect()),
        ends: machine.ends.clone(),
        timers,
        computed_timers,
        record: machine.record.clone(),
        search: machine.search.clone(),
    }
}

fn as_micros<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(fsm_core::time::micros(*duration))
}
