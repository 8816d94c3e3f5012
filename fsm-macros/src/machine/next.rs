//! The events that each verb may request with `ctx.next`, as trait implementations that the compiler checks at the call.

use proc_macro2::TokenStream;
use quote::quote_spanned;

use super::declared::Declared;
use super::graph::{Graph, MachineVerb};
use crate::names;

/// Returns the implementations for all verbs: after a verb that enters a state, the instance takes what the edges out of the state accept.
/// After an internal transition it takes what all states accept in which the verb stands.
pub fn leads(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = &declared.ident;
    let of_verb = |verb: &MachineVerb| {
        let alias = &verb.verb;
        let mut taken = Vec::new();
        let mut impls = quote_spanned!(alias.span()=> #[automatically_derived] impl ::fsm::__private::VerbOf<#ident> for #alias {});
        for next in accepted(declared, graph, verb) {
            let (event, event_type) = (next.event(), next.event_type());
            // If two verbs take one event type by mistake, another rule reports that.
            impls.extend(quote_spanned! {alias.span()=>
                #[automatically_derived]
                impl ::fsm::__private::TakesNext<
                    #ident,
                    <::fsm::__private::Condition<{ ::fsm::__private::is_none_of(#event, &[#(#taken),*]) }>
                        as ::fsm::__private::Pick<#event_type, #alias>>::Picked,
                > for #alias {}
            });
            taken.push(event);
        }
        impls
    };
    graph.verbs.iter().map(of_verb).collect()
}

/// For a machine with mistakes, so that nothing is reported in its verbs.
pub fn leads_anywhere(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = &declared.ident;
    let of_verb = |MachineVerb { verb, .. }: &MachineVerb| {
        quote_spanned! {verb.span()=>
            #[automatically_derived]
            impl ::fsm::__private::VerbOf<#ident> for #verb {}
            #[automatically_derived]
            impl<__Event> ::fsm::__private::TakesNext<#ident, __Event> for #verb {}
        }
    };
    graph.verbs.iter().map(of_verb).collect()
}

/// Returns one verb for each event type that is accepted after the verb.
fn accepted<'g>(declared: &Declared, graph: &'g Graph, verb: &MachineVerb) -> Vec<&'g MachineVerb> {
    let stays = declared.stays.iter().filter(|stay| names::state(&stay.verb) == verb.name);
    let states = if verb.enters { vec![verb.name.clone()] } else { stays.map(|stay| names::state(&stay.state)).collect() };
    let mut accepted: Option<Vec<&MachineVerb>> = None;
    for state in states {
        let here = accepted_in(declared, graph, &state);
        accepted = Some(match accepted {
            Some(before) => before.into_iter().filter(|verb| here.iter().any(|other| event_key(other) == event_key(verb))).collect(),
            None => here,
        });
    }
    accepted.unwrap_or_default()
}

/// Returns one verb for each event type that is accepted in a state.
fn accepted_in<'g>(declared: &Declared, graph: &'g Graph, state: &str) -> Vec<&'g MachineVerb> {
    let edges = declared.edges.iter().filter(|edge| edge.after.is_none() && names::state(&edge.from) == state).map(|edge| &edge.to);
    let stays = declared.stays.iter().filter(|stay| names::state(&stay.state) == state).map(|stay| &stay.verb);
    let mut accepted: Vec<&MachineVerb> = Vec::new();
    for verb in edges.chain(stays).filter_map(|path| graph.verb(path)) {
        if accepted.iter().all(|known| event_key(known) != event_key(verb)) {
            accepted.push(verb);
        }
    }
    accepted
}

/// Equal for two verbs that take one event type: verbs share one within an `on` block only.
fn event_key(verb: &MachineVerb) -> Result<usize, &str> {
    verb.group.ok_or(&verb.name)
}
