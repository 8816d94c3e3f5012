//! The rules of a machine that only types can break, as checks that the compiler makes after the expansion.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::graph::{Graph, State};
use super::parse::Declared;
use crate::names;
use crate::retry::Retry;

pub fn expand(declared: &Declared, graph: &Graph) -> TokenStream {
    let rules = [
        a_name_is_one_verb,
        a_verb_keeps_the_machines_record,
        a_timer_leads_to_a_verb_of_timeout,
        timeout_is_only_behind_a_timer,
        an_on_block_is_of_one_event,
        an_event_type_is_of_one_verb,
        the_default_catch_fits_every_verb,
    ];
    rules.iter().map(|rule| rule(declared, graph)).collect()
}

fn a_name_is_one_verb(_: &Declared, graph: &Graph) -> TokenStream {
    let paths = graph.states.iter().flat_map(|state| state.other_paths.iter().map(move |path| (path, &state.verb)));
    paths.map(|(path, verb)| quote_spanned!(path.span()=> const _: () = ::fsm::__private::is_verb::<#path, #verb>();)).collect()
}

fn a_verb_keeps_the_machines_record(declared: &Declared, graph: &Graph) -> TokenStream {
    let checks = graph.states.iter().map(|State { verb, .. }| match &declared.record {
        Some(record) => quote_spanned!(verb.span()=> const _: () = ::fsm::__private::keeps::<#verb, #record>();),
        None => quote_spanned!(verb.span()=> const _: () = ::fsm::__private::keeps_nothing::<#verb>();),
    });
    checks.collect()
}

fn a_timer_leads_to_a_verb_of_timeout(_: &Declared, graph: &Graph) -> TokenStream {
    let timed = graph.states.iter().filter(|state| state.is_timed);
    timed
        .map(|state| {
            let event_type = state.event_type();
            quote_spanned!(state.verb.span()=> const _: () = ::fsm::__private::is_timeout::<#event_type>();)
        })
        .collect()
}

fn timeout_is_only_behind_a_timer(declared: &Declared, graph: &Graph) -> TokenStream {
    let starts = declared.starts.iter().map(|start| (None, start));
    let edges = declared.edges.iter().filter(|edge| edge.after.is_none()).map(|edge| (Some(names::state(&edge.from)), &edge.to));
    let mut seen = BTreeSet::new();
    let entered = starts.chain(edges).filter(|(_, to)| seen.insert(names::state(to)));
    let checks = entered.filter_map(|(from, to)| {
        let state = graph.state(to)?;
        let (event, name) = (state.event(), &state.name);
        let message = match from {
            Some(from) => {
                format!("the verb `{name}` takes `Timeout`, which only a timer delivers\nhelp: write `{from} after \"30m\" -> {name};`")
            }
            None => format!("the verb `{name}` takes `Timeout`, which only a timer delivers: no instance can start with it"),
        };
        Some(quote_spanned!(to.span()=> const _: () = if ::fsm::__private::same(#event, "Timeout") { ::core::panic!("{}", #message) };))
    });
    checks.collect()
}

fn an_on_block_is_of_one_event(declared: &Declared, graph: &Graph) -> TokenStream {
    let checks = graph.states.iter().filter_map(|state| {
        let group = &declared.groups[state.group?];
        let event_type = state.event_type();
        Some(quote_spanned!(state.verb.span()=> const _: () = ::fsm::__private::is_event::<#event_type, #group>();))
    });
    checks.collect()
}

/// Between every two verbs that can be sent an event, but those of one `on` block.
fn an_event_type_is_of_one_verb(declared: &Declared, graph: &Graph) -> TokenStream {
    let sent: Vec<&State> = graph.states.iter().filter(|state| !state.is_timed).collect();
    let mut checks = TokenStream::new();
    for (i, state) in sent.iter().enumerate() {
        for earlier in &sent[..i] {
            if state.group.is_some() && state.group == earlier.group {
                continue;
            }
            let (event, other) = (state.event(), earlier.event());
            let message = shared_event(declared, earlier, state);
            checks.extend(quote_spanned! {state.verb.span()=>
                const _: () = if ::fsm::__private::same(#event, #other) { ::core::panic!("{}", #message) };
            });
        }
    }
    checks
}

fn shared_event(declared: &Declared, a: &State, b: &State) -> String {
    let froms = |state: &State| {
        let is_start = declared.starts.iter().any(|start| names::state(start) == state.name);
        let edges = declared.edges.iter().filter(|edge| names::state(&edge.to) == state.name);
        let mut froms: BTreeSet<Option<String>> = edges.map(|edge| Some(names::state(&edge.from))).collect();
        if is_start {
            froms.insert(None);
        }
        froms
    };
    let (a_froms, b_froms) = (froms(a), froms(b));
    let (a, b) = (&a.name, &b.name);
    if let Some(from) = a_froms.intersection(&b_froms).next() {
        let edges = match from {
            Some(from) => format!("two edges from `{from}`"),
            None => "two starts".into(),
        };
        return format!(
            "{edges} take the same event type: an event says which edge is taken, and `{a}` and `{b}` have the same one\n\
             help: give one of the two verbs an event type of its own"
        );
    }
    let edge = |froms: &BTreeSet<Option<String>>, to: &str| {
        let edges: Vec<String> = froms.iter().flatten().map(|from| format!("{from} -> {to};")).collect();
        edges.join(" ")
    };
    format!(
        "the verbs `{a}` and `{b}` take the same event type, which an `on` block must say\n\
         help: write `on ThatEvent {{ {} {} }}`",
        edge(&a_froms, a),
        edge(&b_froms, b)
    )
}

/// A machine's default policy may name a catch verb only if that verb takes what each verb without a policy of its own leaves.
fn the_default_catch_fits_every_verb(declared: &Declared, graph: &Graph) -> TokenStream {
    let Some(Retry::Policy(policy)) = &declared.retry else { return TokenStream::new() };
    let Some(catch) = &policy.catch else { return TokenStream::new() };
    let name = names::state(catch);
    let keeps = match &declared.record {
        Some(record) => quote_spanned!(catch.span()=> const _: () = ::fsm::__private::keeps::<__Catch, #record>();),
        None => quote_spanned!(catch.span()=> const _: () = ::fsm::__private::keeps_nothing::<__Catch>();),
    };
    let fits = graph.states.iter().map(|state| {
        let (verb, event) = (&state.verb, state.event());
        let message = format!(
            "the default `catch = {name}` does not fit the verb `{}`: a catch verb takes `Caught` of the event that it catches for\n\
             help: give `{}` a `#[retry(…)]` of its own, or let `{name}` take `Caught<serde_json::Value>`",
            state.name, state.name
        );
        quote_spanned! {catch.span()=>
            const _: () = if ::fsm::__private::inherits(<#verb as ::fsm::__private::Verb>::ENTRY)
                && !::fsm::__private::is_caught(<__Catch as ::fsm::__private::Verb>::EVENT, #event)
            {
                ::core::panic!("{}", #message)
            };
        }
    });
    let fits: TokenStream = fits.collect();
    quote!(#keeps #fits)
}
