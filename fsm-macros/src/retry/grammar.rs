//! The arguments of a retry directive, as they were written.

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, Token, Type, token};

use super::values::expression;
use crate::mistake::Mistakes;

/// One argument.
pub enum Argument {
    /// An argument without a name: `10`, `"5s"` or `none`.
    Plain(Expr),
    /// `min = "5s"`.
    Named(Ident, Expr),
    /// `give_up_on(A, B)`.
    GiveUpOn(Ident, Vec<Type>),
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Argument> {
        if input.peek(Ident) && input.peek2(Token![=]) && !input.peek2(Token![==]) {
            let name = input.parse()?;
            input.parse::<Token![=]>()?;
            return Ok(Argument::Named(name, input.call(expression)?));
        }
        if input.peek(Ident) && input.peek2(token::Paren) {
            let name: Ident = input.parse()?;
            if name != "give_up_on" {
                return Err(syn::Error::new_spanned(
                    &name,
                    format!("unknown option `{name}(…)`\nhelp: the one with parentheses is `give_up_on(A, B)`"),
                ));
            }
            let types;
            syn::parenthesized!(types in input);
            let types = Punctuated::<Type, Token![,]>::parse_terminated(&types)?;
            return Ok(Argument::GiveUpOn(name, types.into_iter().collect()));
        }
        Ok(Argument::Plain(input.call(expression)?))
    }
}

/// Parses the arguments, in order. Returns `None` if one of them is not an argument at all.
pub fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> Option<Vec<Argument>> {
    match Punctuated::<Argument, Token![,]>::parse_terminated.parse2(tokens) {
        Ok(arguments) => Some(arguments.into_iter().collect()),
        Err(error) => {
            mistakes.add_error(error);
            None
        }
    }
}
