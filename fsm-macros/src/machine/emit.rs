//! The output of `fsm!`: the machine's type, its state enum, its traits and its registration.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::graph::{Graph, State};
use super::parse::Declared;
use super::{asserts, state};
use crate::names;
use crate::retry::{self, Retry};

/// Returns the whole output. If a statement could not be read, the checks of types are left out.
pub fn machine(declared: &Declared, graph: &Graph) -> TokenStream {
    let Declared { attributes, visibility, ident, name, .. } = declared;
    let states = state::expand(declared, graph);
    let state = state::ident(declared);
    let record = declared.record.as_ref().map_or(
        quote!(
            type Record = ();
        ),
        |ty| quote_spanned!(ty.span()=> type Record = #ty;),
    );
    let verbs = graph.states.iter().map(alias);
    let catch = catch(declared);
    let retry::Emitted { policy, entry: retry } = retry::emit(&declared.retry);
    let accepts = accepts(declared, graph);
    let asserts = declared.is_whole.then(|| asserts::expand(declared, graph));
    let entry = entry(declared, graph, &retry);
    quote! {
        #(#attributes)*
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #visibility struct #ident;
        #states
        const _: () = {
            #(#verbs)*
            #catch
            #policy
            #entry
            #[automatically_derived]
            impl ::fsm::__private::Machine for #ident {
                type State = #state;
                #record
                const NAME: &'static str = #name;
                const ENTRY: &'static ::fsm::__private::MachineEntry = &__ENTRY;
            }
            #accepts
            #asserts
            ::fsm::__private::inventory::submit! { ::fsm::__private::MachineRef(&__ENTRY) }
        };
    }
}

/// Returns an alias for the verb's path, so that the path occurs once in the output.
fn alias(state: &State) -> TokenStream {
    let State { path, verb, .. } = state;
    quote_spanned!(path.span()=> type #verb = #path;)
}

/// Returns the type of the default policy's catch verb.
fn catch(declared: &Declared) -> Option<TokenStream> {
    let Some(Retry::Policy(policy)) = &declared.retry else { return None };
    policy.catch.as_ref().map(|path| quote_spanned!(path.span()=> type __Catch = #path;))
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

/// Returns one `Accepts` implementation for each event type that a sender may send. The verbs of an `on` block share one; the verb of a
/// timer has none.
fn accepts(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = &declared.ident;
    let mut events = Vec::new();
    let mut impls = TokenStream::new();
    for owner in owners(declared, graph) {
        let (verb, event) = (&owner.verb, owner.event());
        let event_type = match owner.group {
            Some(group) => {
                let event_type = &declared.groups[group];
                quote!(#event_type)
            }
            None => owner.event_type(),
        };
        // If two verbs have the same event type, a rule reports it. A second implementation would only add another error.
        let event_type = if events.is_empty() {
            event_type
        } else {
            quote_spanned! {verb.span()=>
                <::fsm::__private::Fresh<{ ::fsm::__private::is_none_of(#event, &[#(#events),*]) }>
                    as ::fsm::__private::Pick<#event_type, #verb>>::Picked
            }
        };
        impls.extend(quote_spanned! {verb.span()=>
            #[automatically_derived]
            impl ::fsm::__private::Accepts<#event_type> for #ident {
                const EVENT: &'static str = #event;
            }
        });
        events.push(event);
    }
    impls
}

/// Returns the first verb of each event type that can be sent.
fn owners<'g>(declared: &Declared, graph: &'g Graph) -> Vec<&'g State> {
    let mut blocks = BTreeSet::new();
    let mut is_first = |group: usize| blocks.insert(names::event(&declared.groups[group]));
    graph.states.iter().filter(|state| !state.is_timed && state.group.is_none_or(&mut is_first)).collect()
}
