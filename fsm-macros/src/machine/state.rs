//! The state enum of a machine, as tokens.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::declared::Declared;
use super::graph::{Graph, MachineVerb};
use crate::names;

/// Returns the name of the enum: `PaymentState` for `Payment`.
pub fn ident(declared: &Declared) -> Ident {
    format_ident!("{}State", declared.ident.unraw(), span = declared.ident.span())
}

pub fn expand(declared: &Declared, graph: &Graph) -> TokenStream {
    let ident = ident(declared);
    let (visibility, machine) = (&declared.visibility, &declared.name);
    // If two states have the same variant name, only the first gets a variant. A rule reports the second.
    let mut seen = BTreeSet::new();
    let distinct: Vec<&MachineVerb> = graph.states().filter(|state| seen.insert(names::variant(&state.name))).collect();
    let only_named: Vec<&String> = graph.only_named.iter().filter(|name| seen.insert(names::variant(name))).collect();
    let unplaced = only_named.iter().map(|name| format_ident!("{}", names::variant(name), span = ident.span()));
    let variants: Vec<Ident> = distinct.iter().map(|state| variant(state)).chain(unplaced).collect();
    let states: Vec<&String> = distinct.iter().map(|state| &state.name).chain(only_named).collect();
    let docs = format!(" The states of [`{}`].", declared.ident);
    let variant_docs = states.iter().map(|state| format!(" Entered by the verb `{state}`."));
    quote! {
        #[doc = #docs]
        #[derive(::core::fmt::Debug, ::core::clone::Clone, ::core::marker::Copy, ::core::cmp::PartialEq, ::core::cmp::Eq, ::core::hash::Hash)]
        #visibility enum #ident {
            #(#[doc = #variant_docs] #variants,)*
        }
        impl #ident {
            /// The state's name, in the database and on the screens.
            pub const fn as_str(self) -> &'static str {
                match self {
                    #(Self::#variants => #states,)*
                }
            }
        }
        #[automatically_derived]
        impl ::core::fmt::Display for #ident {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(Self::as_str(*self))
            }
        }
        #[automatically_derived]
        impl ::core::str::FromStr for #ident {
            type Err = ::fsm::__private::UnknownState;
            fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
                match text {
                    #(#states => ::core::result::Result::Ok(Self::#variants),)*
                    _ => ::core::result::Result::Err(::fsm::__private::UnknownState::new(#machine, text, &[#(#states),*])),
                }
            }
        }
        #[automatically_derived]
        impl ::fsm::__private::serde::Serialize for #ident {
            fn serialize<S: ::fsm::__private::serde::Serializer>(&self, to: S) -> ::core::result::Result<S::Ok, S::Error> {
                to.serialize_str(Self::as_str(*self))
            }
        }
        #[automatically_derived]
        impl<'de> ::fsm::__private::serde::Deserialize<'de> for #ident {
            fn deserialize<D: ::fsm::__private::serde::Deserializer<'de>>(from: D) -> ::core::result::Result<Self, D::Error> {
                let text = <::std::string::String as ::fsm::__private::serde::Deserialize<'de>>::deserialize(from)?;
                ::core::str::FromStr::from_str(&text).map_err(<D::Error as ::fsm::__private::serde::de::Error>::custom)
            }
        }
    }
}

fn variant(state: &MachineVerb) -> Ident {
    format_ident!("{}", names::variant(&state.name), span = state.path.segments.last().map_or(state.verb.span(), |last| last.ident.span()))
}
