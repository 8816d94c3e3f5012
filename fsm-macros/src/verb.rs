//! `#[verb]`: a free async function becomes a registered verb.

mod emit;
mod function;
mod options;
mod parameters;

use proc_macro2::TokenStream;
use quote::quote;

use crate::mistake::Mistakes;
use function::Function;

pub fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let mut function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(_) => {
            mistakes.add(
                &item,
                "`#[verb]` goes on a function, and this is none",
                "write `#[verb] async fn name(event: Event) -> Result { … }`",
            );
            return quote!(#item #mistakes);
        }
    };
    if function.has_conditions() {
        return function.below_its_conditions(options);
    }
    let retries = function.take_retries();
    let retry = function::retry(&retries, &mut mistakes);
    let echoes = retries.iter().map(|attribute| crate::retry::echo(attribute.path()));
    let options = options::parse(options, &mut mistakes);
    let head = function::check(&function, options.is_blocking, &mut mistakes);
    let beside = match (head, function.signature.receiver()) {
        (Some(head), _) => emit::verb(&function, &head, &options, &retry),
        // Only the function is returned, because a type cannot be declared inside an `impl` block.
        (None, Some(_)) => TokenStream::new(),
        (None, None) => emit::stub(&function),
    };
    quote!(#function #(#echoes)* #mistakes #beside)
}
