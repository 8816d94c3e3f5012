//! Mistakes of one expansion, collected so that the user sees all of them at once, each at its location.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes that were found in one expansion.
#[derive(Default)]
pub struct Mistakes(Vec<syn::Error>);

impl Mistakes {
    /// Adds a mistake at some tokens. `message` says what is rejected and what is expected, and `help` what would be accepted.
    pub fn add(&mut self, at: impl ToTokens, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.0.push(syn::Error::new_spanned(at, text(message, help)));
    }

    /// Adds a mistake at a location without tokens.
    pub fn add_at(&mut self, at: Span, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.0.push(syn::Error::new(at, text(message, help)));
    }

    /// Adds an error of the parser.
    pub fn add_error(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    /// Moves the mistakes of `others` into this list.
    pub fn append(&mut self, others: Mistakes) {
        self.0.extend(others.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all messages.
    #[cfg(test)]
    pub fn messages(&self) -> Vec<String> {
        self.0.iter().map(syn::Error::to_string).collect()
    }
}

/// Returns one `compile_error!` for each mistake.
impl ToTokens for Mistakes {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(syn::Error::to_compile_error));
    }
}

fn text(message: impl AsRef<str>, help: impl AsRef<str>) -> String {
    format!("{}\nhelp: {}", message.as_ref(), help.as_ref())
}
