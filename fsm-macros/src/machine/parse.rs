//! The statements of `fsm!`. Each is parsed by itself, so that a wrong one does not hide the mistakes of the others.

mod edges;
mod keeps;
mod words;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, LitStr, Token, Type, braced, parenthesized, token};

use super::declared::{Declared, Start};
use crate::mistake::Mistakes;
use crate::names;
use crate::retry::{self, Retry};
use edges::{edges_of, separated};
use keeps::keeps;
use words::{begins, peek_word};

/// Parses the machine. Statements that cannot be read are left out and reported as mistakes.
pub fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> syn::Result<Declared> {
    (|input: ParseStream<'_>| machine(input, mistakes)).parse2(tokens)
}

fn machine(input: ParseStream<'_>, mistakes: &mut Mistakes) -> syn::Result<Declared> {
    let attributes = input.call(Attribute::parse_outer)?;
    let visibility = input.parse()?;
    if !peek_word(input, "machine") {
        return Err(input.error("expected a machine\nhelp: write `pub machine Payment = \"payment\" { … }`"));
    }
    input.call(Ident::parse_any)?;
    let ident: Ident = input.parse()?;
    let name = name(input, &ident, mistakes)?;
    let body;
    braced!(body in input);
    if !input.is_empty() {
        return Err(input.error("one `fsm!` declares one machine\nhelp: write a second `fsm! { … }`"));
    }
    let mut declared = Declared {
        attributes,
        visibility,
        ident,
        name,
        retry: None,
        record: None,
        search: Vec::new(),
        fair_by: None,
        starts: Vec::new(),
        edges: Vec::new(),
        stays: Vec::new(),
        ends: Vec::new(),
        groups: Vec::new(),
        is_whole: true,
        skipped: Vec::new(),
    };
    let mut skipped = Vec::new();
    let is_whole = each_statement(&body, mistakes, &mut skipped, |input, mistakes| statement(input, &mut declared, mistakes));
    declared.is_whole &= is_whole;
    declared.skipped.extend(skipped);
    Ok(declared)
}

/// Parses `= "payment"`.
fn name(input: ParseStream<'_>, ident: &Ident, mistakes: &mut Mistakes) -> syn::Result<LitStr> {
    let example = ident.unraw().to_string().to_lowercase();
    if !input.peek(Token![=]) {
        let message = format!("`{ident}` has no name in the database");
        mistakes.add(ident, message, format!("write `machine {ident} = \"{example}\"`"));
        return Ok(LitStr::new(&example, ident.span()));
    }
    input.parse::<Token![=]>()?;
    let name: LitStr = input.parse()?;
    let text = name.value();
    let is_fine = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_' || letter == '-';
    if text.is_empty() || text.len() > 64 || !text.chars().all(is_fine) {
        let message = format!("`{text}` is no name for a machine: it has 1 to 64 of the letters a-z, 0-9, `_` and `-`");
        mistakes.add(&name, message, format!("write `machine {ident} = \"{example}\"`"));
    }
    Ok(name)
}

/// Parses statements to the end. After a statement that cannot be read, it continues behind the next `;` or block, and returns false at the
/// end.
fn each_statement(
    input: ParseStream<'_>,
    mistakes: &mut Mistakes,
    skipped: &mut Vec<String>,
    mut read: impl FnMut(ParseStream<'_>, &mut Mistakes) -> syn::Result<()>,
) -> bool {
    let mut is_whole = true;
    while !input.is_empty() {
        if let Err(error) = read(input, mistakes) {
            mistakes.add_error(error);
            skip_statement(input, skipped);
            is_whole = false;
        }
    }
    is_whole
}

fn skip_statement(input: ParseStream<'_>, skipped: &mut Vec<String>) {
    while !input.is_empty() {
        let is_last = input.peek(Token![;]) || input.peek(token::Brace);
        match input.parse::<TokenTree>() {
            Ok(TokenTree::Ident(word)) => skipped.push(word.unraw().to_string()),
            Ok(_) => {}
            Err(_) => return,
        }
        if is_last {
            return;
        }
    }
}

fn statement(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    if begins(input, "start") {
        starts(input, None, declared, mistakes)?;
    } else if begins(input, "end") {
        input.call(Ident::parse_any)?;
        declared.ends.extend(separated(input)?);
    } else if begins(input, "keeps") {
        keeps(input, declared, mistakes)?;
    } else if peek_word(input, "search") && input.peek2(token::Paren) {
        return Err(input.error(keeps::ALONE));
    } else if peek_word(input, "retry") && input.peek2(token::Paren) {
        default_retry(input, declared, mistakes)?;
    } else if begins(input, "on") {
        return on(input, declared, mistakes);
    } else {
        edges_of(input, None, declared, mistakes)?;
    }
    semicolon(input, mistakes)
}

/// Parses `start created | imported`.
fn starts(input: ParseStream<'_>, group: Option<usize>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    input.call(Ident::parse_any)?;
    declared.starts.extend(separated(input)?.into_iter().map(|state| Start { state, group }));
    if peek_word(input, "interrupts") {
        let word = input.call(Ident::parse_any)?;
        let message = "a start interrupts nothing: before it, the instance does not exist and runs no call";
        mistakes.add(&word, message, "remove `interrupts`; it belongs to an edge out of a state, like `active -> cancelled interrupts;`");
    }
    Ok(())
}

/// Parses a `;`. If it is only missing, that is reported, and the next statement is parsed.
fn semicolon(input: ParseStream<'_>, mistakes: &mut Mistakes) -> syn::Result<()> {
    if input.peek(Token![;]) {
        return input.parse::<Token![;]>().map(drop);
    }
    // A word that no statement begins with: another state of the list.
    if input.peek(Ident::peek_any) && (input.peek2(Token![;]) || input.peek2(Token![,]) || input.peek2(Token![|])) {
        return Err(input.error("expected `,` or `|` before another state, or `;`, which ends a statement"));
    }
    if !input.is_empty() && !input.peek(Ident::peek_any) && !input.peek(Token![::]) {
        return Err(input.error("expected `;`, which ends a statement"));
    }
    mistakes.add_error(input.error("expected `;`, which ends the statement before"));
    Ok(())
}

fn default_retry(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    let word = input.call(Ident::parse_any)?;
    let options;
    parenthesized!(options in input);
    if declared.retry.is_some() {
        mistakes.add(&word, "a second `retry`: a machine has one default policy", "put `#[retry(…)]` on the verb that differs");
    }
    declared.retry = retry::parse(options.parse()?, &word, mistakes);
    if let Some(Retry::Policy(policy)) = &declared.retry
        && let Some(function) = &policy.give_up_if
    {
        let message =
            "`give_up_if` in the default policy: it takes the error type of one verb, and the verbs of a machine may have several";
        mistakes.add(function, message, "move it to the `#[retry(…)]` of the verb, or use `give_up_on(…)` here");
    }
    Ok(())
}

/// Parses `on Cancel { start refused; created -> cancelled; paid -> refunding; }`.
fn on(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    input.call(Ident::parse_any)?;
    let event: Type = input.parse()?;
    let block;
    braced!(block in input);
    if block.is_empty() {
        mistakes.add(&event, "this `on` block is empty: it lists the edges of one event type", "write `on Cancel { a -> b; c -> d; }`");
    }
    let group = Some(group(event, declared, mistakes));
    let mut skipped = Vec::new();
    let is_whole = each_statement(&block, mistakes, &mut skipped, |input, mistakes| {
        match begins(input, "start") {
            true => starts(input, group, declared, mistakes)?,
            false => edges_of(input, group, declared, mistakes)?,
        }
        semicolon(input, mistakes)
    });
    declared.is_whole &= is_whole;
    declared.skipped.extend(skipped);
    Ok(())
}

/// Returns the index of the `on` block of an event type. A second block for the same type is a mistake.
fn group(event: Type, declared: &mut Declared, mistakes: &mut Mistakes) -> usize {
    let name = names::event(&event);
    if let Some(first) = declared.groups.iter().position(|other| names::event(other) == name) {
        mistakes.add(event, format!("a second `on {name}`: an event type has one `on` block"), "move its edges into the first");
        return first;
    }
    declared.groups.push(event);
    declared.groups.len() - 1
}
