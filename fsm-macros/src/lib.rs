//! `#[verb]`, `#[retry]` and `fsm!`: tokens in, tokens out. Each is parse -> model -> check -> expand, and emits data.

use proc_macro::TokenStream;

/// x
#[proc_macro_attribute]
pub fn verb(_options: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// x
#[proc_macro_attribute]
pub fn retry(_options: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// x
#[proc_macro]
pub fn fsm(_graph: TokenStream) -> TokenStream {
    TokenStream::new()
}
