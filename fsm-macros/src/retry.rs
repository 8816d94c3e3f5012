//! `#[retry(…)]`, and `retry(…)` inside `fsm!`: one grammar, one policy.

mod emit;
mod grammar;
mod policy;
mod values;

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Path};

pub use emit::{Emitted, emit, micros, optional};

use crate::mistake::Mistakes;
use crate::names;

/// What a directive says.
pub enum Retry {
    /// `none`.
    Never,
    Policy(Box<Policy>),
}

/// A policy in which every hole is filled.
pub struct Policy {
    pub max_attempts: Option<u32>,
    pub min: Duration,
    pub max: Duration,
    pub backoff: f64,
    pub jitter: f64,
    pub within: Option<Duration>,
    pub give_up_on: Vec<syn::Type>,
    pub delay: Option<Path>,
    pub catch: Option<Path>,
}

/// Reads a directive; `at` is what mistakes of the whole point to. `None` if it breaks a rule.
pub fn parse(options: TokenStream, at: impl ToTokens, mistakes: &mut Mistakes) -> Option<Retry> {
    let mut found = Mistakes::default();
    let arguments = grammar::parse(options, &mut found);
    let retry = arguments.and_then(|arguments| policy::read(arguments, &at, &mut found));
    let is_sound = found.is_empty();
    mistakes.append(found);
    retry.filter(|_| is_sound)
}

/// An expression, out of what a `macro_rules!` fragment is wrapped in.
pub fn expression(input: ParseStream<'_>) -> syn::Result<Expr> {
    let mut expression = input.parse()?;
    while let Expr::Group(group) = expression {
        expression = *group.expr;
    }
    Ok(expression)
}

/// The duration that an option was given as text.
pub fn duration(value: &Expr, mistakes: &mut Mistakes) -> Option<Duration> {
    let help = fsm_core::duration::NotADuration::HELP;
    let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else {
        mistakes.add(value, format!("`{}` is not a duration: a duration is written in quotes", names::joined(value)), help);
        return None;
    };
    match fsm_core::duration::parse(&text.value()) {
        Ok(duration) => Some(duration),
        Err(error) => {
            mistakes.add(text, error.to_string(), help);
            None
        }
    }
}

/// `#[retry(…)]` as the outer attribute: puts itself below `#[verb]`, which reads it.
///
/// What `#[verb]` has read comes back as an [`echo`], which leaves nothing.
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

/// A use of the attribute that `#[verb]` read and took off: its import counts as used, and a missing one is told of.
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

/// Any item, its attributes apart.
struct Item {
    attributes: Vec<Attribute>,
    rest: TokenStream,
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Item> {
        Ok(Item { attributes: input.call(Attribute::parse_outer)?, rest: input.parse()? })
    }
}
