//! The statement `keeps Record, search(customer, tenant), fair_by = tenant;` of `fsm!`.

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Token, Type, parenthesized, token};

use super::words::peek_word;
use crate::machine::declared::Declared;
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
    fair_by_is_a_search_field(declared, mistakes);
    Ok(())
}

/// The values of a search field are stored beside the instance. Those of other fields are not.
fn fair_by_is_a_search_field(declared: &Declared, mistakes: &mut Mistakes) {
    let Some(field) = declared.fair_by.as_ref().filter(|field| !declared.search.contains(field)) else { return };
    let help = match declared.search.is_empty() {
        true => format!("write `search({field}), fair_by = {field}`"),
        false => format!("add it to `search(…)`, which has {}", listed(&declared.search)),
    };
    mistakes.add(field, format!("`{field}` is no search field, and `fair_by` needs one"), help);
}

fn listed(fields: &[Ident]) -> String {
    fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ")
}

fn clause(input: ParseStream<'_>, declared: &mut Declared, mistakes: &mut Mistakes) -> syn::Result<()> {
    if peek_word(input, "fair_by") {
        let word = input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
        let field = input.call(Ident::parse_any)?;
        if declared.fair_by.is_some() {
            mistakes.add(&word, "a second `fair_by`: a machine shares its slots by one field", "remove one");
        }
        declared.fair_by = Some(field);
        return Ok(());
    }
    if !peek_word(input, "search") || !input.peek2(token::Paren) {
        return Err(input.error("expected `search(…)` or `fair_by = …` behind the record\nhelp: write `keeps Record, search(customer);`"));
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
