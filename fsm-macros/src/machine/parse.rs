//! The statements of `fsm!`. Each is parsed by itself, so that a wrong one does not hide the mistakes of the others.

use std::time::Duration;

use fsm_core::check::nearest;
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, LitStr, Path, Token, Type, Visibility, braced, parenthesized, token};

use crate::mistake::Mistakes;
use crate::names;
use crate::retry::{self, Retry};

/// The words that statements begin with.
const WORDS: [&str; 5] = ["start", "end", "on", "keeps", "retry"];

/// What is expected where no statement begins.
const STATEMENTS: &str = "expected a statement: `start a;`, `a -> b | c;`, `any(a, b) -> c;`, `a after \"30m\" -> b;`, \
    `on Event { a -> b; }`, `end a, b;`, `keeps Record;` or `retry(3, \"1s\");`";

/// A machine as it was written.
pub struct Declared {
    pub attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub ident: Ident,
    /// The name in the database.
    pub name: LitStr,
    pub retry: Option<Retry>,
    pub record: Option<Type>,
    pub starts: Vec<Path>,
    pub edges: Vec<Edge>,
    pub ends: Vec<Path>,
    /// The event type of each `on` block.
    pub groups: Vec<Type>,
    /// True if every statement could be read.
    pub is_whole: bool,
    /// The words of what was left out, which may be states.
    pub skipped: Vec<String>,
}

/// One edge; `any(…)` and `|` declare several.
pub struct Edge {
    pub from: Path,
    pub to: Path,
    pub after: Option<After>,
    /// The `on` block of the edge.
    pub group: Option<usize>,
}

/// A timer. It has no duration if the duration could not be read.
#[derive(Clone, Copy)]
pub struct After {
    pub duration: Option<Duration>,
}

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
        starts: Vec::new(),
        edges: Vec::new(),
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
        input.call(Ident::parse_any)?;
        declared.starts.extend(separated(input)?);
    } else if begins(input, "end") {
        input.call(Ident::parse_any)?;
        declared.ends.extend(separated(input)?);
    } else if begins(input, "keeps") {
        keeps(input, declared, mistakes)?;
    } else if peek_word(input, "retry") && input.peek2(token::Paren) {
        default_retry(input, declared, mistakes)?;
    } else if begins(input, "on") {
        return on(input, declared, mistakes);
    } else {
        declared.edges.extend(edges_of(input, None, mistakes)?);
    }
    semicolon(input, mistakes)
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

fn keeps(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    let word = input.call(Ident::parse_any)?;
    let record: Type = input.parse()?;
    if declared.record.is_some() {
        mistakes.add(&word, "a second `keeps`: an instance has one record", "put both into one struct");
    }
    declared.record = Some(record);
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
    Ok(())
}

/// Parses `on Cancel { created -> cancelled; paid -> refunding; }`.
fn on(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    input.call(Ident::parse_any)?;
    let event: Type = input.parse()?;
    let block;
    braced!(block in input);
    if block.is_empty() {
        mistakes.add(&event, "this `on` block is empty: it lists the edges of one event type", "write `on Cancel { a -> b; c -> d; }`");
    }
    let group = group(event, declared, mistakes);
    let edges = &mut declared.edges;
    declared.is_whole &= each_statement(&block, mistakes, &mut declared.skipped, |input, mistakes| {
        edges.extend(edges_of(input, Some(group), mistakes)?);
        semicolon(input, mistakes)
    });
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

/// Parses `a -> b | c`, `any(a, b) -> c` or `a after "30m" -> b`.
fn edges_of(input: ParseStream<'_>, group: Option<usize>, mistakes: &mut Mistakes) -> syn::Result<Vec<Edge>> {
    let froms = sources(input)?;
    let after = if peek_word(input, "after") { after(input, group, mistakes)? } else { None };
    if !input.peek(Token![->]) {
        let word = names::state(&froms[0]);
        let meant = nearest(&word, WORDS.iter().copied()).filter(|_| input.peek(Ident::peek_any));
        if let Some(meant) = meant {
            let message = format!("unknown statement `{word}`\nhelp: did you mean `{meant}`?");
            return Err(syn::Error::new_spanned(&froms[0], message));
        }
        return Err(input.error(format!("expected `->` and the state that `{}` leads to", names::state(&froms[0]))));
    }
    input.parse::<Token![->]>()?;
    let targets = separated(input)?;
    let edge = |from: &Path, to: &Path| Edge { from: from.clone(), to: to.clone(), after, group };
    Ok(froms.iter().flat_map(|from| targets.iter().map(move |to| edge(from, to))).collect())
}

/// Parses the states on the left side of an edge; at least one.
fn sources(input: ParseStream<'_>) -> syn::Result<Vec<Path>> {
    if peek_word(input, "any") && input.peek2(token::Paren) {
        input.call(Ident::parse_any)?;
        let states;
        parenthesized!(states in input);
        if states.is_empty() {
            return Err(states.error("`any()` names no state\nhelp: write `any(a, b) -> c;`"));
        }
        return Ok(Punctuated::<Path, Token![,]>::parse_terminated_with(&states, Path::parse_mod_style)?.into_iter().collect());
    }
    if !input.peek(Ident::peek_any) && !input.peek(Token![::]) {
        return Err(input.error(STATEMENTS));
    }
    Ok(vec![input.call(Path::parse_mod_style)?])
}

/// Parses `after "30m"`. Inside an `on` block that is a mistake, and the edge is then treated as an edge of the block.
fn after(input: ParseStream<'_>, group: Option<usize>, mistakes: &mut Mistakes) -> syn::Result<Option<After>> {
    let word = input.call(Ident::parse_any)?;
    let value = syn::Expr::Lit(syn::ExprLit { attrs: Vec::new(), lit: input.parse()? });
    let after = After { duration: retry::duration(&value, mistakes) };
    if group.is_none() {
        return Ok(Some(after));
    }
    let message = "a timer inside an `on` block: what it delivers is `Timeout`, not the event of the block";
    mistakes.add(&word, message, "move the edge out of the block");
    Ok(None)
}

/// Parses paths that are separated by `|` or `,`.
fn separated(input: ParseStream<'_>) -> syn::Result<Vec<Path>> {
    let mut paths = vec![input.call(Path::parse_mod_style)?];
    while input.peek(Token![|]) || input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
        paths.push(input.call(Path::parse_mod_style)?);
    }
    Ok(paths)
}

fn peek_word(input: ParseStream<'_>, word: &str) -> bool {
    input.cursor().ident().is_some_and(|(ident, _)| ident == word)
}

/// True if a statement begins with this keyword. A state may have the same name.
fn begins(input: ParseStream<'_>, word: &str) -> bool {
    let is_state = input.peek2(Token![->]) || input.peek2(Token![::]) || {
        let next = input.cursor().ident().and_then(|(_, rest)| rest.ident());
        next.is_some_and(|(ident, rest)| ident == "after" && rest.literal().is_some())
    };
    peek_word(input, word) && !is_state
}
