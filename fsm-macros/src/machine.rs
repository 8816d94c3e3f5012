//! `fsm!`: expands a graph into a type, an enum of its states and the registration of the machine.

mod aliases;
mod asserts;
mod declared;
mod emit;
mod graph;
mod next;
mod parse;
mod rules;
mod search;
mod state;

use proc_macro2::TokenStream;
use quote::quote;

use crate::mistake::Mistakes;
use graph::Graph;

pub fn expand(tokens: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let declared = match parse::parse(tokens, &mut mistakes) {
        Ok(declared) => declared,
        Err(error) => {
            mistakes.add_error(error);
            return quote!(#mistakes);
        }
    };
    let mut graph = Graph::of(&declared);
    // If a statement could not be read, the graph is incomplete, and rules about it would report wrong mistakes.
    if declared.is_whole {
        rules::check(&declared, &graph, &mut mistakes);
        graph.leave_out_misspelled();
    } else {
        graph.name_all(&declared);
    }
    let machine = emit::machine(&declared, &graph, mistakes.is_empty());
    quote!(#machine #mistakes)
}
