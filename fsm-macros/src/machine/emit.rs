//! The output of `fsm!`: the machine's type, its state enum, its traits and its registration.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

use super::declared::{After, Declared};
use super::graph::{Graph, MachineVerb};
use super::{aliases, asserts, next, search, state};
use crate::names;
use crate::retry::{self, Retry};

/// The whole output. If a mistake was found already, the machine accepts every event. If a statement could not be read, the rules on types
/// are left out. Otherwise the compiler would report errors that only follow from those mistakes.
pub fn machine(declared: &Declared, graph: &Graph, is_sound: bool) -> TokenStream {
    let Declared { attributes, visibility, ident, name, .. } = declared;
    let states = state::expand(declared, graph);
    let state = state::ident(declared);
    let record = match aliases::record(declared) {
        Some(record) => quote_spanned!(record.span()=> type Record = #record;),
        None => quote!(
            type Record = ();
        ),
    };
    let mentioned = aliases::mentioned(declared);
    let verbs = graph.verbs.iter().map(aliases::verb);
    let catch = catch(declared);
    let retry::Emitted { policy, entry: retry } = retry::emit(&declared.retry);
    let accepts = if is_sound { accepts(declared, graph) } else { accepts_all(declared) };
    let asserts = declared.is_whole.then(|| asserts::expand(declared, graph));
    let entry = entry(declared, graph, &retry);
    let computed_timers = computed_timers(declared);
    let search = search::function(declared);
    let leads = if is_sound { next::leads(declared, graph) } else { next::leads_anywhere(declared, graph) };
    quote! {
        #(#attributes)*
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy)]
        #visibility struct #ident;
        #states
        const _: () = {
            #(#verbs)*
            #mentioned
            #catch
            #policy
            #computed_timers
            #search
            #entry
            #[automatically_derived]
            impl ::fsm::__private::Machine for #ident {
                type State = #state;
                #record
                const NAME: &'static str = #name;
                const ENTRY: &'static ::fsm::__private::MachineEntry = &__ENTRY;
            }
            #accepts
            #leads
            #asserts
            ::fsm::__private::inventory::submit! { ::fsm::__private::MachineRef(&__ENTRY) }
        };
    }
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
    let search = search::entry(declared);
    let starts = declared.starts.iter().map(|start| edge_entry(graph, None, &start.state, &quote!()));
    let edges = declared.edges.iter().enumerate().map(|(i, edge)| {
        let after = edge.after.as_ref().and_then(|after| wait(after, i)).map(|after| quote!(after: ::core::option::Option::Some(#after),));
        let interrupts = edge.interrupts.then(|| quote!(interrupts: true,));
        edge_entry(graph, Some(&edge.from), &edge.to, &quote!(#after #interrupts))
    });
    let stays = declared.stays.iter().map(|stay| edge_entry(graph, Some(&stay.state), &stay.verb, &quote!(stays: true,)));
    let edges = starts.chain(edges).chain(stays).flatten();
    quote! {
        static __ENTRY: ::fsm::__private::MachineEntry = ::fsm::__private::MachineEntry {
            name: #name,
            docs: #docs,
            module: ::core::module_path!(),
            record: #record,
            retry: #retry,
            edges: &[#(#edges),*],
            ends: &[#(#ends),*],
            search: #search,
        };
    }
}

/// Returns the entry of an edge. `fields` are those that differ from an edge on an event into a state.
fn edge_entry(graph: &Graph, from: Option<&Path>, to: &Path, fields: &TokenStream) -> Option<TokenStream> {
    let verb = &graph.verb(to)?.verb;
    let from = retry::optional(from.map(names::state).map(|from| quote!(#from)));
    let plain = quote!(::fsm::__private::EdgeEntry::new(#from, <#verb as ::fsm::__private::Verb>::ENTRY));
    Some(if fields.is_empty() { plain } else { quote!(::fsm::__private::EdgeEntry { #fields ..#plain }) })
}

fn wait(after: &After, i: usize) -> Option<TokenStream> {
    match after {
        After::Fixed(duration) => {
            let duration = retry::micros((*duration)?);
            Some(quote!(::fsm::__private::WaitEntry::Fixed(#duration)))
        }
        After::Computed(function) => {
            let (name, due) = (names::joined(function), due(i));
            Some(quote!(::fsm::__private::WaitEntry::Computed { name: #name, due: #due }))
        }
    }
}

/// The name of the function that computes a timer from the encoded record.
fn due(i: usize) -> Ident {
    format_ident!("__due{i}")
}

fn computed_timers(declared: &Declared) -> TokenStream {
    let (record, name) = match (&declared.record, aliases::record(declared)) {
        (Some(ty), Some(record)) => (quote!(#record), names::joined(ty)),
        _ => (quote!(()), "()".to_owned()),
    };
    let functions = declared.edges.iter().enumerate().filter_map(|(i, edge)| {
        let Some(After::Computed(function)) = &edge.after else { return None };
        let due = due(i);
        let computed = quote_spanned!(function.span()=> ::fsm::__private::due::<#record, _>(&__record, #function));
        Some(quote! {
            fn #due(
                __record: ::core::option::Option<&[u8]>,
            ) -> ::core::result::Result<::fsm::__private::Due, ::fsm::__private::Failure> {
                let __record = ::fsm::__private::decode_record::<#record>(#name, __record)?;
                ::core::result::Result::Ok(#computed)
            }
        })
    });
    functions.collect()
}

/// Returns one `Accepts` implementation for each event type that a sender may send. The verbs of an `on` block share one; the verb of a
/// timer has none.
fn accepts(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = &declared.ident;
    let mut events = Vec::new();
    let mut impls = TokenStream::new();
    for owner in owners(declared, graph) {
        let (verb, event) = (&owner.verb, owner.event());
        let event_type = owner.event_type();
        // If the name is taken already, a rule reports it. A second implementation would be reported as well.
        let event_type = if events.is_empty() {
            event_type
        } else {
            quote_spanned! {verb.span()=>
                <::fsm::__private::Condition<{ ::fsm::__private::is_none_of(#event, &[#(#events),*]) }>
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

/// For a machine with mistakes: it accepts every event, so that sends to it report no further errors.
fn accepts_all(declared: &Declared) -> TokenStream {
    let ident = &declared.ident;
    quote! {
        #[automatically_derived]
        impl<__Event> ::fsm::__private::Accepts<__Event> for #ident {
            const EVENT: &'static str = "";
        }
    }
}

/// The first verb of each event type that can be sent.
fn owners<'g>(declared: &Declared, graph: &'g Graph) -> Vec<&'g MachineVerb> {
    let mut blocks = BTreeSet::new();
    let mut is_first = |group: usize| blocks.insert(names::event(&declared.groups[group]));
    graph.verbs.iter().filter(|state| !state.is_timed && state.group.is_none_or(&mut is_first)).collect()
}
