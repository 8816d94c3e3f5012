//! What `fsm!` makes: the machine's type, its state enum, its traits and its registration.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::graph::{Graph, State};
use super::parse::Declared;
use super::{asserts, state};
use crate::names;
use crate::retry;

/// All of it, or without the rules on types where the graph itself is not sound.
pub fn machine(declared: &Declared, graph: &Graph, is_sound: bool) -> TokenStream {
    let Declared { attributes, visibility, ident, name, .. } = declared;
    let states = state::expand(declared, graph);
    let state = state::ident(declared);
    let record = declared.record.as_ref().map_or(quote!(()), |record| quote!(#record));
    let verbs = graph.states.iter().map(alias);
    let retry::Emitted { items: policy, entry: retry, .. } = retry::emit(&declared.retry);
    let accepts = accepts(declared, graph);
    let asserts = is_sound.then(|| asserts::expand(declared, graph));
    let entry = entry(declared, graph, &retry);
    quote! {
        #(#attributes)*
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #visibility struct #ident;
        #states
        const _: () = {
            #(#verbs)*
            #policy
            #entry
            #[automatically_derived]
            impl ::fsm::__private::Machine for #ident {
                type State = #state;
                type Record = #record;
                const NAME: &'static str = #name;
                const ENTRY: &'static ::fsm::__private::MachineEntry = &__ENTRY;
            }
            #accepts
            #asserts
            ::fsm::__private::inventory::submit! { ::fsm::__private::MachineRef(&__ENTRY) }
        };
    }
}

/// The verb's path, mentioned once.
fn alias(state: &State) -> TokenStream {
    let State { path, verb, .. } = state;
    quote_spanned!(path.span()=> type #verb = #path;)
}

fn entry(declared: &Declared, graph: &Graph, retry: &TokenStream) -> TokenStream {
    let (name, docs) = (&declared.name, names::docs(&declared.attributes));
    let record = retry::optional(declared.record.as_ref().map(|record| {
        let record = names::joined(record);
        quote!(#record)
    }));
    let ends = &graph.names.ends;
    let starts = declared.starts.iter().map(|start| (None, start, None));
    let edges = declared.edges.iter().map(|edge| (Some(names::state(&edge.from)), &edge.to, edge.after.as_ref()));
    let edges = starts.chain(edges).filter_map(|(from, to, after)| {
        let verb = &graph.state(to)?.verb;
        let from = retry::optional(from.map(|from| quote!(#from)));
        let after = retry::optional(after.and_then(|after| after.duration).map(retry::micros));
        Some(quote! {
            ::fsm::__private::EdgeEntry { from: #from, verb: <#verb as ::fsm::__private::Verb>::ENTRY, after: #after }
        })
    });
    quote! {
        static __ENTRY: ::fsm::__private::MachineEntry = ::fsm::__private::MachineEntry {
            name: #name,
            docs: #docs,
            module: ::core::module_path!(),
            record: #record,
            retry: #retry,
            edges: &[#(#edges),*],
            ends: &[#(#ends),*],
        };
    }
}

/// One impl for each event type that a sender may send: the verbs of an `on` block share theirs, a timer's verb has none.
fn accepts(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = &declared.ident;
    let mut groups = BTreeSet::new();
    let sent = graph.states.iter().filter(|state| !state.is_timed && state.group.is_none_or(|group| groups.insert(group)));
    sent.map(|state| {
        let event = state.event();
        let event_type = match state.group {
            Some(group) => {
                let event_type = &declared.groups[group];
                quote!(#event_type)
            }
            None => state.event_type(),
        };
        quote_spanned! {state.verb.span()=>
            #[automatically_derived]
            impl ::fsm::__private::Accepts<#event_type> for #ident {
                const EVENT: &'static str = #event;
            }
        }
    })
    .collect()
}
