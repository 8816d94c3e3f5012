//! The declared machine as a graph: its verbs in order, and the location of each edge.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

use super::declared::Declared;
use crate::names;

/// A verb of the machine: it enters the state of its name, or carries out internal transitions.
pub struct MachineVerb {
    pub name: String,
    /// Its path at the first edge on which it runs.
    pub path: Path,
    /// The type alias that stands for the verb in the output, so that a wrong path is reported once.
    pub verb: Ident,
    /// Other paths of the verb, at later edges.
    pub other_paths: Vec<Path>,
    /// True if it enters a state; false if it runs in internal transitions.
    pub enters: bool,
    /// True if it is the target of a timer, so that its event is `Timeout`.
    pub is_timed: bool,
    /// The `on` block in which it stands.
    pub group: Option<usize>,
}

/// The machine in the form that the rules and the expansion need.
pub struct Graph {
    /// The verbs: those of starts first, then in the order in which edges enter states, then those of internal transitions.
    pub verbs: Vec<MachineVerb>,
    /// States of which it is not known whether there is a verb: they have a variant, and nothing else is emitted for them.
    pub only_named: Vec<String>,
    /// The names alone, for the rules of `fsm-core`.
    pub names: fsm_core::check::Graph,
}

impl Graph {
    pub fn of(declared: &Declared) -> Graph {
        let mut graph = Graph { verbs: Vec::new(), only_named: Vec::new(), names: names_of(declared) };
        let mut known = BTreeMap::new();
        let starts = declared.starts.iter().map(|start| (&start.state, true, false, start.group));
        let edges = declared.edges.iter().map(|edge| (&edge.to, true, edge.after.is_some(), edge.group));
        let stays = declared.stays.iter().map(|stay| (&stay.verb, false, false, stay.group));
        for (path, enters, is_timed, group) in starts.chain(edges).chain(stays) {
            let name = names::state(path);
            let i = *known.entry(name.clone()).or_insert(graph.verbs.len());
            if i == graph.verbs.len() {
                graph.verbs.push(MachineVerb::new(name, path, enters, i));
            }
            graph.verbs[i].runs_at(path, is_timed, group);
        }
        graph
    }

    /// A misspelled state has probably no verb, and the compiler's error about that would be misleading. Both spellings become variants, so
    /// that code with the right one compiles.
    pub fn leave_out_misspelled(&mut self) {
        let misspelled = fsm_core::check::misspelled(&self.names);
        self.verbs.retain(|state| !misspelled.contains_key(&state.name));
        self.only_named = misspelled.into_iter().flat_map(|(wrong, right)| [wrong, right]).collect();
    }

    /// If a statement could not be read, every name in the tokens may be a state that other code names.
    pub fn name_all(&mut self, declared: &Declared) {
        let named =
            self.names.ends.iter().chain(self.names.edges.iter().map(|(from, _)| from)).chain(&self.names.stays).chain(&declared.skipped);
        let is_unknown = |name: &&String| self.verbs.iter().filter(|verb| verb.enters).all(|verb| verb.name != **name);
        self.only_named = named.filter(is_unknown).cloned().collect();
    }

    /// The verbs that enter states.
    pub fn states(&self) -> impl Iterator<Item = &MachineVerb> {
        self.verbs.iter().filter(|verb| verb.enters)
    }

    pub fn verb(&self, path: &Path) -> Option<&MachineVerb> {
        let name = names::state(path);
        self.verbs.iter().find(|verb| verb.name == name)
    }
}

impl MachineVerb {
    fn new(name: String, path: &Path, enters: bool, i: usize) -> MachineVerb {
        // The alias has the location of the verb, so that errors about it point there.
        let verb = format_ident!("__Verb{i}", span = path.span());
        MachineVerb { name, path: path.clone(), verb, other_paths: Vec::new(), enters, is_timed: false, group: None }
    }

    fn runs_at(&mut self, path: &Path, is_timed: bool, group: Option<usize>) {
        let is_known = |known: &Path| names::joined(known) == names::joined(path);
        if !is_known(&self.path) && !self.other_paths.iter().any(is_known) {
            self.other_paths.push(path.clone());
        }
        self.is_timed |= is_timed;
        self.group = self.group.or(group);
    }

    /// Returns the event type of the verb, as tokens.
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
        starts: declared.starts.iter().map(|start| names::state(&start.state)).collect(),
        edges: declared.edges.iter().map(|edge| (names::state(&edge.from), names::state(&edge.to))).collect(),
        stays: declared.stays.iter().map(|stay| names::state(&stay.state)).collect(),
        ends: declared.ends.iter().map(names::state).collect(),
    }
}
