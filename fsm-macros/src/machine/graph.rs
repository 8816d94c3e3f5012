//! The declared machine as a graph: its states in order, and the location of each edge.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

use super::parse::{Declared, Edge};
use crate::names;

/// A state, and the verb that enters it.
pub struct State {
    pub name: String,
    /// The verb's path at the first edge into the state.
    pub path: Path,
    /// The type alias that stands for the verb in the output, so that a wrong path is reported once.
    pub verb: Ident,
    /// Other paths of the verb, at later edges into the state.
    pub other_paths: Vec<Path>,
    /// True if the state is the target of a timer, so that its event is `Timeout`.
    pub is_timed: bool,
    /// The `on` block in which the state is a target.
    pub group: Option<usize>,
}

/// The machine in the form that the rules and the expansion need.
pub struct Graph {
    /// The states: starts first, then in the order in which edges enter them.
    pub states: Vec<State>,
    /// States of which it is not known whether there is a verb: they have a variant, and nothing else is emitted for them.
    pub only_named: Vec<String>,
    /// The names alone, for the rules of `fsm-core`.
    pub names: fsm_core::check::Graph,
}

impl Graph {
    pub fn of(declared: &Declared) -> Graph {
        let mut graph = Graph { states: Vec::new(), only_named: Vec::new(), names: names_of(declared) };
        let mut known = BTreeMap::new();
        let entered = declared.starts.iter().map(|start| (start, None)).chain(declared.edges.iter().map(|edge| (&edge.to, Some(edge))));
        for (path, edge) in entered {
            let name = names::state(path);
            let i = *known.entry(name.clone()).or_insert(graph.states.len());
            if i == graph.states.len() {
                graph.states.push(State::new(name, path, i));
            }
            graph.states[i].entered_by(path, edge);
        }
        graph
    }

    /// Of a misspelled state there is probably no verb, which the compiler would say in words that lead astray. Both spellings are variants,
    /// for the code that uses the right one.
    pub fn leave_out_misspelled(&mut self) {
        let misspelled = fsm_core::check::misspelled(&self.names);
        self.states.retain(|state| !misspelled.contains_key(&state.name));
        self.only_named = misspelled.into_iter().flat_map(|(wrong, right)| [wrong, right]).collect();
    }

    /// With a statement missing, every name that stands anywhere is a state that code may name.
    pub fn name_all(&mut self, declared: &Declared) {
        let named = self.names.ends.iter().chain(self.names.edges.iter().map(|(from, _)| from)).chain(&declared.skipped);
        let is_unknown = |name: &&String| self.states.iter().all(|state| state.name != **name);
        self.only_named = named.filter(is_unknown).cloned().collect();
    }

    pub fn state(&self, path: &Path) -> Option<&State> {
        let name = names::state(path);
        self.states.iter().find(|state| state.name == name)
    }
}

impl State {
    fn new(name: String, path: &Path, i: usize) -> State {
        // The alias has the location of the verb, so that errors about it point there.
        let verb = format_ident!("__Verb{i}", span = path.span());
        State { name, path: path.clone(), verb, other_paths: Vec::new(), is_timed: false, group: None }
    }

    fn entered_by(&mut self, path: &Path, edge: Option<&Edge>) {
        let is_known = |known: &Path| names::joined(known) == names::joined(path);
        if !is_known(&self.path) && !self.other_paths.iter().any(is_known) {
            self.other_paths.push(path.clone());
        }
        if let Some(edge) = edge {
            self.is_timed |= edge.after.is_some();
            self.group = self.group.or(edge.group);
        }
    }

    /// Returns the event type of the state's verb, as tokens.
    pub fn event_type(&self) -> TokenStream {
        let verb = &self.verb;
        quote_spanned!(verb.span()=> <#verb as ::fsm::__private::Verb>::Event)
    }

    /// Returns the name of that event type, as tokens.
    pub fn event(&self) -> TokenStream {
        let verb = &self.verb;
        quote_spanned!(verb.span()=> <#verb as ::fsm::__private::Verb>::EVENT)
    }
}

fn names_of(declared: &Declared) -> fsm_core::check::Graph {
    fsm_core::check::Graph {
        starts: declared.starts.iter().map(names::state).collect(),
        edges: declared.edges.iter().map(|edge| (names::state(&edge.from), names::state(&edge.to))).collect(),
        ends: declared.ends.iter().map(names::state).collect(),
    }
}
