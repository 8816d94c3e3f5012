//! The search fields of a machine, as tokens.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;

use super::aliases;
use super::declared::Declared;
use crate::{names, retry};

/// The entry of the search fields.
pub fn entry(declared: &Declared) -> TokenStream {
    let names = declared.search.iter().map(|field| field.unraw().to_string());
    let fair_by = retry::optional(declared.fair_by.as_ref().map(|field| field.unraw().to_string()).map(|field| quote!(#field)));
    let entry = (!declared.search.is_empty())
        .then(|| quote!(::fsm::__private::SearchEntry { names: &[#(#names),*], values: __search, fair_by: #fair_by }));
    retry::optional(entry)
}

/// The function that returns the values of the search fields, from the encoded record.
pub fn function(declared: &Declared) -> Option<TokenStream> {
    let record = aliases::record(declared).filter(|_| !declared.search.is_empty())?;
    let name = declared.record.as_ref().map(names::joined);
    let values = declared.search.iter().map(|field| quote_spanned!(field.span()=> ::fsm::__private::search_value(&__record.#field)));
    Some(quote! {
        fn __search(
            __record: &[u8],
        ) -> ::core::result::Result<::std::vec::Vec<::std::string::String>, ::fsm::__private::Failure> {
            let __record = ::fsm::__private::decode_record::<#record>(#name, ::core::option::Option::Some(__record))?;
            ::core::result::Result::Ok(::std::vec![#(#values),*])
        }
    })
}
