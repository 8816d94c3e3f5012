//! The options of `#[verb(…)]`.

use std::time::Duration;

use proc_macro2::TokenStream;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{Expr, Lit};

use crate::mistake::Mistakes;
use crate::names;
use crate::retry::{duration, expression};

/// The maximum length of the name of a limit, in bytes.
const LONGEST_NAME: usize = 100;

/// The options of `#[verb(…)]`.
#[derive(Default)]
pub struct Options {
    /// The timeout of one attempt.
    pub timeout: Option<Duration>,
    /// The name of the limit under which the calls run.
    pub limit: Option<String>,
    /// The time after which an attempt without progress ends.
    pub heartbeat: Option<Duration>,
    /// The verb is a plain function that blocks its thread.
    pub is_blocking: bool,
}

/// Parses the options. Those that cannot be read are left out and reported.
pub fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> Options {
    let (mut options, mut seen) = (Options::default(), Vec::new());
    let parser = syn::meta::parser(|meta| option(meta, &mut options, &mut seen, mistakes));
    if let Err(error) = parser.parse2(tokens) {
        mistakes.add_error(error);
    }
    options
}

fn option(meta: ParseNestedMeta<'_>, options: &mut Options, seen: &mut Vec<String>, mistakes: &mut Mistakes) -> syn::Result<()> {
    let name = names::joined(&meta.path);
    if name == "blocking" {
        options.is_blocking = true;
        return Ok(());
    }
    if !["timeout", "heartbeat", "limit"].contains(&&*name) {
        mistakes.add(
            &meta.path,
            format!("unknown option `{name}`: `#[verb]` has the options `timeout`, `heartbeat`, `limit` and `blocking`"),
            "write `#[verb]`, or for example `#[verb(timeout = \"30s\", limit = \"stripe\")]`",
        );
        // The value of an unknown option is skipped with it.
        if !meta.input.is_empty() && !meta.input.peek(syn::Token![,]) {
            meta.input.step(|cursor| Ok(((), skip_to_comma(*cursor))))?;
        }
        return Ok(());
    }
    let value = meta.value()?.call(expression)?;
    if seen.contains(&name) {
        mistakes.add(&meta.path, format!("`{name}` is given twice"), "remove one");
    }
    match &*name {
        "limit" => options.limit = limit(&value, mistakes),
        "heartbeat" => options.heartbeat = duration(&value, mistakes),
        _ => options.timeout = duration(&value, mistakes),
    }
    seen.push(name);
    Ok(())
}

/// Parses the name of a limit.
fn limit(value: &Expr, mistakes: &mut Mistakes) -> Option<String> {
    let help = "write the name that the builder declares with `.limit(…)`, like `limit = \"stripe\"`";
    let Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) = value else {
        let value_text = names::joined(value);
        mistakes.add(value, format!("`{value_text}` is not the name of a limit: a name is written in quotes"), help);
        return None;
    };
    let (name, length) = (text.value(), text.value().len());
    if !(1..=LONGEST_NAME).contains(&length) {
        mistakes.add(text, format!("the name of a limit has 1 to {LONGEST_NAME} bytes, not {length}"), help);
        return None;
    }
    Some(name)
}

fn skip_to_comma(mut cursor: syn::buffer::Cursor<'_>) -> syn::buffer::Cursor<'_> {
    while let Some((token, next)) = cursor.token_tree() {
        if matches!(&token, proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ',') {
            break;
        }
        cursor = next;
    }
    cursor
}
