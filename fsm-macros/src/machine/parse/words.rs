//! The words that the statements of `fsm!` consist of.

use syn::Token;
use syn::parse::ParseStream;

/// The words that statements begin with.
pub(super) const WORDS: [&str; 5] = ["start", "end", "on", "keeps", "retry"];

/// What is expected where no statement begins.
pub(super) const STATEMENTS: &str = "expected a statement: `start a;`, `a -> b | c;`, `any(a, b) -> c;`, `a after \"30m\" -> b;`, \
    `a stays on b;`, `a -> b interrupts;`, `on Event { a -> b; }`, `end a, b;`, `keeps Record;`, \
    `keeps Record, search(a, b);` or `retry(3, \"1s\");`";

pub(super) fn peek_word(input: ParseStream<'_>, word: &str) -> bool {
    input.cursor().ident().is_some_and(|(ident, _)| ident == word)
}

/// True if a statement begins with this keyword. A state may have the same name.
pub(super) fn begins(input: ParseStream<'_>, word: &str) -> bool {
    let is_state = input.peek2(Token![->]) || input.peek2(Token![::]) || {
        let next = input.cursor().ident().and_then(|(_, rest)| rest.ident());
        let is_before_a_wait = |rest: syn::buffer::Cursor<'_>| rest.literal().is_some() || rest.ident().is_some();
        next.is_some_and(|(ident, rest)| {
            (ident == "after" && is_before_a_wait(rest)) || (ident == "stays" && rest.ident().is_some_and(|(on, _)| on == "on"))
        })
    };
    peek_word(input, word) && !is_state
}
