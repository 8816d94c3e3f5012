//! The statement `keeps Record, search(customer, tenant);` of `fsm!`.

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Token, Type, parenthesized, token};

use super::{Declared, peek_word};
use crate::mistake::Mistakes;

/// The error for `search(…)` as a statement of its own.
pub(super) const ALONE: &str = "`search` names fields of the record, so it follows `keeps`\nhelp: write `keeps Record, search(customer);`";

/// Parses `keeps Record`, and the clauses behind it.
pub(super) fn keeps(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    let word = input.call(Ident::parse_any)?;
    let record: Type = input.parse()?;
    if declared.record.is_some() {
        mistakes.add(&word, "a second `keeps`: an instance has one record", "put both into one struct");
    }
    declared.record = Some(record);
    while input.peek(Token![,]) {
        input.parse::<Token![,]>()?;
        clause(input, declared, mistakes)?;
    }
    Ok(())
}

fn clause(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    if !peek_word(input, "search") || !input.peek2(token::Paren) {
        return Err(input.error("expected `search(…)` behind the record\nhelp: write `keeps Record, search(customer);`"));
    }
    let word = input.call(Ident::parse_any)?;
    let fields;
    parenthesized!(fields in input);
    let fields = Punctuated::<Ident, Token![,]>::parse_terminated_with(&fields, Ident::parse_any)?;
    if fields.is_empty() {
        mistakes.add(&word, "`search()` names no field", "write `search(customer)` with a field of the record");
    }
    for field in fields {
        if declared.search.contains(&field) {
            mistakes.add(&field, format!("`{field}` is named twice: a search field is declared once"), "remove one");
        } else {
            declared.search.push(field);
        }
    }
    Ok(())
}
