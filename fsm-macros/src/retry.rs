//! `#[retry(…)]`, and `retry(…)` inside `fsm!`: the same grammar and the same policy.

mod emit;
mod grammar;
mod model;
mod policy;
mod values;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Path};

pub use emit::{Emitted, emit, micros, optional};
pub use model::Retry;
pub use values::{duration, expression};

use crate::mistake::Mistakes;
use crate::names;

/// Parses a directive. Mistakes that concern all of it point at `at`. Returns `None` if it breaks a rule.
pub fn parse(options: TokenStream, at: impl ToTokens, mistakes: &mut Mistakes) -> Option<Retry> {
    let mut found = Mistakes::default();
    let arguments = grammar::parse(options, &mut found);
    let retry = arguments.and_then(|arguments| policy::read(arguments, &at, &mut found));
    let is_sound = found.is_empty();
    mistakes.append(found);
    retry.filter(|_| is_sound)
}

/// Expands `#[retry(…)]` as the outer attribute: it moves itself below `#[verb]`, which reads it.
///
/// A directive that `#[verb]` has read comes back as an [`echo`], which expands to nothing.
pub fn above(options: TokenStream, item: TokenStream) -> TokenStream {
    if options.to_string() == READ {
        return TokenStream::new();
    }
    let Ok(Item { mut attributes, rest }) = syn::parse2::<Item>(item.clone()) else { return alone(item) };
    let is_verb_or_condition = |attribute: &Attribute| names::ends_in(attribute.path(), "verb") || attribute.path().is_ident("cfg_attr");
    let Some(verb) = attributes.iter().position(is_verb_or_condition) else { return alone(item) };
    let below = attributes.split_off(verb + 1);
    quote!(#(#attributes)* #[::fsm::retry(#options)] #(#below)* #rest)
}

const READ: &str = "__read_by_verb";

/// Returns a use of an attribute that `#[verb]` read and removed. With it, the compiler counts the import as used, and reports a missing
/// import.
pub fn echo(path: &Path) -> TokenStream {
    let read = quote::format_ident!("{}", READ);
    quote!(#[#path(#read)] const _: () = ();)
}

fn alone(item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let place = proc_macro2::Span::call_site();
    mistakes.add_at(place, "`#[retry]` stands alone: it is the retry policy of a verb", "add `#[verb]` to the function");
    quote!(#item #mistakes)
}

/// Any item, with its attributes separate.
struct Item {
    attributes: Vec<Attribute>,
    rest: TokenStream,
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Item> {
        Ok(Item { attributes: input.call(Attribute::parse_outer)?, rest: input.parse()? })
    }
}
