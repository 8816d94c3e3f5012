//! Mistakes, collected so that a user reads all of them at once, each at its place.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// What was found wrong in one expansion.
#[derive(Default)]
pub struct Mistakes(Vec<syn::Error>);

impl Mistakes {
    /// `message` says what is rejected and what is expected, `help` what would work.
    pub fn add(&mut self, at: impl ToTokens, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.0.push(syn::Error::new_spanned(at, text(message, help)));
    }

    /// The same, where there are no tokens to point at but a place.
    pub fn add_at(&mut self, at: Span, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.0.push(syn::Error::new(at, text(message, help)));
    }

    /// What the parser said.
    pub fn add_error(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    /// Takes over those of `others`.
    pub fn append(&mut self, others: Mistakes) {
        self.0.extend(others.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every message, one after the other.
    #[cfg(test)]
    pub fn messages(&self) -> Vec<String> {
        self.0.iter().map(syn::Error::to_string).collect()
    }
}

/// One `compile_error!` a mistake.
impl ToTokens for Mistakes {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(syn::Error::to_compile_error));
    }
}

fn text(message: impl AsRef<str>, help: impl AsRef<str>) -> String {
    format!("{}\nhelp: {}", message.as_ref(), help.as_ref())
}
