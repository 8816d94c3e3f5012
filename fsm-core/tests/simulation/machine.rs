//! The machine of the simulation. It has each kind of retry policy, timers that end an instance and timers that do not, a catch verb and a
//! loop.

use std::time::Duration;

use fsm_core::machine::{Edge, Machine, TIMEOUT, Verb};
use fsm_core::retry::Retry;

pub const NAME: &str = "order";
/// The events that lead from a state to another one.
pub const EVENTS: [&str; 6] = ["Create", "Note", "Pay", "Ship", "Complete", "Cancel"];
/// The event of internal transitions, and the one that interrupts. They are drawn less often.
pub const RARE: [&str; 2] = ["Touch", "Stop"];

/// created -> noted (repeatedly) -> paid -> shipped, with the catch verb rescued, -> completed. Two states have timers, and internal
/// transitions on `Touch`. `Stop` interrupts in four states. `paid` and the verbs of the timers have no retry policy.
pub fn machine() -> Machine {
    let s = Duration::from_secs;
    let verb = |name: &str, event: &str, retry| Verb { name: name.into(), event: event.into(), timeout: None, retry, limit: None };
    let (edge, after) = (Edge::new, Edge::timer);
    let caught = Retry { catch: Some("rescued".into()), ..Retry::doubling(s(2), s(9)).retries_at_most(1) };
    let bounded = Retry { within: Some(s(20)), ..Retry::every(s(5)) };
    Machine {
        name: NAME.into(),
        docs: String::new(),
        verbs: vec![
            verb("created", "Create", Some(Retry::doubling(s(1), s(3600)).retries_at_most(2))),
            verb("noted", "Note", Some(bounded)),
            verb("paid", "Pay", None),
            verb("shipped", "Ship", Some(caught)),
            verb("completed", "Complete", Some(Retry::every(s(3)))),
            verb("cancelled", "Cancel", None),
            verb("expired", TIMEOUT, None),
            verb("reminded", TIMEOUT, None),
            verb("touched", "Touch", Some(Retry::every(s(4)).retries_at_most(2))),
            verb("stopped", "Stop", Some(Retry::every(s(2)).retries_at_most(1))),
            verb("rescued", "Caught<Ship>", Some(Retry::every(s(1)).retries_at_most(1))),
        ],
        edges: vec![
            edge(None, "Create", "created"),
            edge(Some("created"), "Note", "noted"),
            edge(Some("created"), "Pay", "paid"),
            edge(Some("created"), "Cancel", "cancelled"),
            after("created", s(30), "expired"),
            edge(Some("noted"), "Note", "noted"),
            edge(Some("noted"), "Pay", "paid"),
            after("noted", s(12), "reminded"),
            edge(Some("reminded"), "Note", "noted"),
            edge(Some("reminded"), "Pay", "paid"),
            edge(Some("paid"), "Ship", "shipped"),
            edge(Some("paid"), "Note", "noted"),
            edge(Some("paid"), "Cancel", "cancelled"),
            edge(Some("shipped"), "Complete", "completed"),
            edge(Some("shipped"), "Pay", "paid"),
            Edge::stay("created", "Touch", "touched"),
            Edge::stay("noted", "Touch", "touched"),
            edge(Some("created"), "Stop", "stopped").interrupting(),
            edge(Some("noted"), "Stop", "stopped").interrupting(),
            edge(Some("paid"), "Stop", "stopped").interrupting(),
            edge(Some("shipped"), "Stop", "stopped"),
            edge(Some("stopped"), "Note", "noted"),
            edge(Some("stopped"), "Stop", "stopped").interrupting(),
        ],
        ends: vec!["completed".into(), "cancelled".into(), "expired".into()],
        record: None,
        search: Vec::new(),
        fair_by: None,
    }
}
