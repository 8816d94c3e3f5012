//! The statements of `fsm!` about edges: transitions, internal transitions and timers.

use fsm_core::check::nearest;
use proc_macro2::TokenTree;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Lit, Path, Token, parenthesized, token};

use super::words::{STATEMENTS, WORDS, peek_word};
use crate::machine::declared::{After, Declared, Edge, Stay};
use crate::mistake::Mistakes;
use crate::{names, retry};

/// Parses `a -> b | c`, `any(a, b) -> c`, `a after "30m" -> b`, `a -> b interrupts` or `a stays on b | c`.
pub(super) fn edges_of(input: ParseStream<'_>, group: Option<usize>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    let froms = sources(input)?;
    if peek_word(input, "stays") {
        return stays(input, &froms, group, declared, mistakes);
    }
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
    let interrupts = interrupts(input, after.is_some(), mistakes)?;
    for from in &froms {
        let edge = |to: &Path| Edge { from: from.clone(), to: to.clone(), after: after.clone(), interrupts, group };
        declared.edges.extend(targets.iter().map(edge));
    }
    Ok(())
}

/// Parses `stays on b | c`, after the states.
fn stays(
    input: ParseStream<'_>,
    states: &[Path],
    group: Option<usize>,
    declared: &mut Declared,
    mistakes: &mut Mistakes,
) -> syn::Result<()> {
    input.call(Ident::parse_any)?;
    if !peek_word(input, "on") {
        return Err(input.error("expected `on` and the verbs that run in the state\nhelp: write `active stays on noted;`"));
    }
    input.call(Ident::parse_any)?;
    let verbs = separated(input)?;
    for state in states {
        declared.stays.extend(verbs.iter().map(|verb| Stay { state: state.clone(), verb: verb.clone(), group }));
    }
    if peek_word(input, "interrupts") {
        let word = input.call(Ident::parse_any)?;
        let message = "an internal transition interrupts nothing: its event waits for the open call, and the instance stays in its state";
        mistakes.add(&word, message, "remove `interrupts`");
    }
    Ok(())
}

/// Parses `interrupts` behind the targets of an edge, if it is there.
fn interrupts(input: ParseStream<'_>, is_timer: bool, mistakes: &mut Mistakes) -> syn::Result<bool> {
    if !peek_word(input, "interrupts") {
        return Ok(false);
    }
    let word = input.call(Ident::parse_any)?;
    if is_timer {
        let message = "a timer interrupts nothing: it fires while the instance rests in its state";
        mistakes.add(&word, message, "remove `interrupts`");
    }
    Ok(!is_timer)
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

/// Parses `after "30m"` or `after trial_length`. Inside an `on` block this is a mistake, and the edge is then treated as an edge of the block.
fn after(input: ParseStream<'_>, group: Option<usize>, mistakes: &mut Mistakes) -> syn::Result<Option<After>> {
    let word = input.call(Ident::parse_any)?;
    let after = if input.peek(Lit) {
        let value = syn::Expr::Lit(syn::ExprLit { attrs: Vec::new(), lit: input.parse()? });
        After::Fixed(retry::duration(&value, mistakes))
    } else if input.peek(Ident::peek_any) || input.peek(Token![::]) {
        After::Computed(input.call(Path::parse_mod_style)?)
    } else {
        let help = "write `a after \"30m\" -> b;`, or name a function of the record, like `a after trial_length -> b;`";
        return Err(input.error(format!("expected a duration in quotes or a function that computes it\nhelp: {help}")));
    };
    if group.is_none() {
        return Ok(Some(after));
    }
    let message = "a timer inside an `on` block: what it delivers is `Timeout`, not the event of the block";
    mistakes.add(&word, message, "move the edge out of the block");
    Ok(None)
}

/// Parses paths that are separated by `|` or `,`.
pub(super) fn separated(input: ParseStream<'_>) -> syn::Result<Vec<Path>> {
    let mut paths = vec![input.call(Path::parse_mod_style)?];
    while input.peek(Token![|]) || input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
        paths.push(input.call(Path::parse_mod_style)?);
    }
    Ok(paths)
}
