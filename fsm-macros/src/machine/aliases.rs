//! The aliases of the types that a machine names. Each type is mentioned once, so that the compiler reports a wrong one once.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use super::declared::Declared;
use super::graph::MachineVerb;

/// The alias of the machine's record, so that the compiler reports a wrong type once.
pub fn record(declared: &Declared) -> Option<Ident> {
    declared.record.as_ref().map(|ty| format_ident!("__Record", span = ty.span()))
}

/// The alias of the event type of an `on` block.
pub fn group(declared: &Declared, i: usize) -> Ident {
    format_ident!("__Group{i}", span = declared.groups[i].span())
}

/// The types that the machine names, each mentioned once.
pub fn mentioned(declared: &Declared) -> TokenStream {
    let record = declared.record.as_ref().zip(record(declared)).map(|(ty, alias)| quote_spanned!(ty.span()=> type #alias = #ty;));
    let groups = declared.groups.iter().enumerate().map(|(i, ty)| {
        let alias = group(declared, i);
        quote_spanned!(ty.span()=> #[allow(dead_code)] type #alias = #ty;)
    });
    let groups: TokenStream = groups.collect();
    quote!(#record #groups)
}

/// The alias of a verb's path, which is mentioned once.
pub fn verb(state: &MachineVerb) -> TokenStream {
    let MachineVerb { path, verb, .. } = state;
    quote_spanned!(path.span()=> type #verb = #path;)
}
