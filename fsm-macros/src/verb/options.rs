//! The options of `#[verb(…)]`.

use std::time::Duration;

use proc_macro2::TokenStream;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;

use crate::mistake::Mistakes;
use crate::retry::{duration, expression};

/// The options of `#[verb(…)]`.
#[derive(Default)]
pub struct Options {
    /// The timeout of one attempt.
    pub timeout: Option<Duration>,
}

/// Parses the options. Those that cannot be read are left out and reported.
pub fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> Options {
    let mut options = Options::default();
    let parser = syn::meta::parser(|meta| option(meta, &mut options, mistakes));
    if let Err(error) = parser.parse2(tokens) {
        mistakes.add_error(error);
    }
    options
}

fn option(meta: ParseNestedMeta<'_>, options: &mut Options, mistakes: &mut Mistakes) -> syn::Result<()> {
    if !meta.path.is_ident("timeout") {
        let name = crate::names::joined(&meta.path);
        mistakes.add(
            &meta.path,
            format!("unknown option `{name}`: `#[verb]` has the option `timeout`"),
            "write `#[verb]` or `#[verb(timeout = \"30s\")]`",
        );
        // The value of an unknown option is skipped with it.
        if !meta.input.is_empty() && !meta.input.peek(syn::Token![,]) {
            meta.input.step(|cursor| Ok(((), skip_to_comma(*cursor))))?;
        }
        return Ok(());
    }
    let value = meta.value()?.call(expression)?;
    if options.timeout.is_some() {
        mistakes.add(&meta.path, "`timeout` is given twice", "remove one");
    }
    options.timeout = duration(&value, mistakes);
    Ok(())
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
