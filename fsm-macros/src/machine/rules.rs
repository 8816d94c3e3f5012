//! The rules of a machine that depend on names only. The rules that depend on types are in `asserts`.

use std::collections::{BTreeMap, BTreeSet};

use fsm_core::check::Location;
use quote::ToTokens;

use super::declared::Declared;
use super::graph::Graph;
use crate::mistake::Mistakes;
use crate::names;

pub fn check(declared: &Declared, graph: &Graph, mistakes: &mut Mistakes) {
    the_graph_is_sound(declared, graph, mistakes);
    let rules = [
        a_state_has_one_timer,
        an_event_leads_from_a_state_to_one,
        an_internal_transition_is_there_once,
        a_verb_enters_a_state_or_stays,
        states_have_distinct_variants,
    ];
    for rule in rules {
        rule(declared, graph, mistakes);
    }
}

/// Applies the rules of `fsm-core` and reports their mistakes at the tokens.
fn the_graph_is_sound(declared: &Declared, graph: &Graph, mistakes: &mut Mistakes) {
    for mistake in fsm_core::check::check(&graph.names) {
        let at: &dyn ToTokens = match mistake.location {
            Location::Graph => &declared.ident,
            Location::Start(i) => &declared.starts[i].state,
            Location::EdgeFrom(i) => &declared.edges[i].from,
            Location::EdgeTo(i) => &declared.edges[i].to,
            Location::Stay(i) => &declared.stays[i].state,
            Location::End(i) => &declared.ends[i],
        };
        mistakes.add(at, mistake.message, mistake.help);
    }
}

fn a_state_has_one_timer(declared: &Declared, _: &Graph, mistakes: &mut Mistakes) {
    let mut timed = BTreeSet::new();
    for edge in declared.edges.iter().filter(|edge| edge.after.is_some()) {
        let from = names::state(&edge.from);
        if !timed.insert(from.clone()) {
            let help = "let the first timer lead to a state that has a timer of its own";
            mistakes.add(&edge.to, format!("a second timer on `{from}`: a state has at most one, which leads to one state"), help);
        }
    }
}

/// All edges of an `on` block take the same event, so a state may be left only once in it.
fn an_event_leads_from_a_state_to_one(declared: &Declared, graph: &Graph, mistakes: &mut Mistakes) {
    let mut taken: BTreeMap<(usize, Option<String>), String> = BTreeMap::new();
    let starts = declared.starts.iter().map(|start| (None, &start.state));
    let edges = declared.edges.iter().map(|edge| (Some(names::state(&edge.from)), &edge.to));
    let stays = declared.stays.iter().map(|stay| (Some(names::state(&stay.state)), &stay.verb));
    for (from, to) in starts.chain(edges).chain(stays) {
        let Some(group) = graph.verb(to).and_then(|state| state.group) else { continue };
        let name = names::state(to);
        let Some(first) = taken.insert((group, from.clone()), name.clone()) else { continue };
        if first == name {
            continue;
        }
        let event = names::joined(&declared.groups[group]);
        let from = from.map_or("the start".into(), |from| format!("`{from}`"));
        let message = format!("`{event}` leads from {from} to `{first}` and to `{name}`: an event takes one edge");
        mistakes.add(to, message, "remove one, or give one of the two verbs an event type of its own");
    }
}

fn an_internal_transition_is_there_once(declared: &Declared, _: &Graph, mistakes: &mut Mistakes) {
    let mut seen = BTreeSet::new();
    for stay in &declared.stays {
        let (state, verb) = (names::state(&stay.state), names::state(&stay.verb));
        if !seen.insert((state.clone(), verb.clone())) {
            mistakes.add(
                &stay.verb,
                format!("`{state} stays on {verb}` is there twice: each internal transition is declared once"),
                "remove one",
            );
        }
    }
}

/// The verb of a state runs when the state is entered. An internal transition enters none.
fn a_verb_enters_a_state_or_stays(declared: &Declared, graph: &Graph, mistakes: &mut Mistakes) {
    for stay in &declared.stays {
        let verb = names::state(&stay.verb);
        if graph.states().any(|state| state.name == verb) {
            let message = format!("`{verb}` is a state of the machine: the verb under `stays on` enters no state");
            mistakes.add(&stay.verb, message, "write another verb for it; both may call the same function");
        }
    }
}

fn states_have_distinct_variants(_: &Declared, graph: &Graph, mistakes: &mut Mistakes) {
    let mut seen = BTreeMap::new();
    for state in graph.states() {
        let variant = names::variant(&state.name);
        if let Some(first) = seen.insert(variant.clone(), &state.name) {
            let message = format!("the states `{first}` and `{}` would both be the variant `{variant}` of the state enum", state.name);
            mistakes.add(&state.path, message, "rename one of the two verbs");
        }
    }
}
