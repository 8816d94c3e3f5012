//! The names that types and verbs have in the database, in tools and in the state enum.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Attribute, Expr, GenericArgument, Ident, Lit, Meta, Path, PathArguments, Type};

/// Returns the name of an event type: its last path segment with its generic arguments, which are named by the same rule, without spaces.
pub fn event(ty: &Type) -> String {
    let path = match ty {
        Type::Path(path) => path,
        // A `macro_rules!` fragment is wrapped in a group.
        Type::Group(group) => return event(&group.elem),
        _ => return joined(ty),
    };
    let Some(last) = path.path.segments.last() else { return joined(ty) };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return last.ident.unraw().to_string() };
    let argument = |argument: &GenericArgument| match argument {
        GenericArgument::Type(ty) => event(ty),
        other => joined(other),
    };
    let arguments: Vec<String> = arguments.args.iter().map(argument).collect();
    format!("{}<{}>", last.ident.unraw(), arguments.join(","))
}

/// Returns the name of a verb and of the state that it enters: the last path segment.
pub fn state(path: &Path) -> String {
    path.segments.last().map(|last| last.ident.unraw().to_string()).unwrap_or_default()
}

/// Returns the variant name of a state: `in_review` becomes `InReview`. A name that would become empty, such as `__`, stays as it is.
pub fn variant(state: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    let variant: String = state.split('_').map(capital).collect();
    if syn::parse_str::<syn::Ident>(&variant).is_ok() { variant } else { state.to_owned() }
}

/// Formats tokens for messages, with spaces only between words.
pub fn joined(tokens: impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    for part in tokens.to_string().split_whitespace() {
        let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        if is_word(text.chars().last()) && is_word(part.chars().next()) {
            text.push(' ');
        }
        text.push_str(part);
    }
}

/// Returns the doc comment of an item.
pub fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(value) => match &value.lit {
                Lit::Str(line) => Some(line.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n").trim().to_owned()
}

/// True if a path ends with this word, in any module.
pub fn ends_in(path: &Path, word: &str) -> bool {
    path.segments.last().is_some_and(|last| is(&last.ident, word))
}

/// True if an identifier is this word.
pub fn is(ident: &Ident, word: &str) -> bool {
    ident.unraw() == word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_types_by_their_last_segment() {
        let cases = [
            ("Cancel", "Cancel"),
            ("crate::events::Cancel", "Cancel"),
            ("fsm::Caught<events::Cancel>", "Caught<Cancel>"),
            ("Pair<u32, Vec<u8>>", "Pair<u32,Vec<u8>>"),
            ("(u32, dyn Any)", "(u32,dyn Any)"),
        ];
        for (written, name) in cases {
            assert_eq!(event(&syn::parse_str(written).unwrap()), name);
        }
    }

    #[test]
    fn variants_of_states() {
        for (state, name) in [
            ("created", "Created"),
            ("in_review", "InReview"),
            ("step_2", "Step2"),
            ("über", "Über"),
            ("__", "__"),
            ("_1", "_1"),
            ("self_", "self_"),
        ] {
            assert_eq!(variant(state), name);
        }
    }
}
