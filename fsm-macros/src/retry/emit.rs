//! A retry policy as tokens: the static values that the registry reads.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::model::{Policy, Retry};
use crate::names;

/// A policy as tokens.
pub struct Emitted {
    /// The static value, if there is one. It must be emitted in a scope in which `__Catch` is the type of the catch verb.
    pub policy: Option<TokenStream>,
    /// The expression of the `RetryEntry`.
    pub entry: TokenStream,
}

pub fn emit(retry: &Option<Retry>) -> Emitted {
    match retry {
        None => Emitted { policy: None, entry: quote!(::fsm::__private::RetryEntry::Inherit) },
        Some(Retry::Never) => Emitted { policy: None, entry: quote!(::fsm::__private::RetryEntry::Never) },
        Some(Retry::Policy(policy)) => {
            let policy_entry = policy_entry(policy);
            Emitted {
                policy: Some(quote!(static __POLICY: ::fsm::__private::PolicyEntry = #policy_entry;)),
                entry: quote!(::fsm::__private::RetryEntry::Policy(&__POLICY)),
            }
        }
    }
}

fn policy_entry(policy: &Policy) -> TokenStream {
    let max_attempts = optional(policy.max_attempts.map(|count| quote!(#count)));
    let (min, max) = (micros(policy.min), micros(policy.max));
    let (backoff, jitter) = (Literal::f64_unsuffixed(policy.backoff), Literal::f64_unsuffixed(policy.jitter));
    let within = optional(policy.within.map(micros));
    let give_up_on = policy.give_up_on.iter().map(|ty| {
        let name = names::joined(ty);
        quote_spanned!(ty.span()=> ::fsm::__private::GiveUpEntry { name: #name, is: ::fsm::__private::is_error::<#ty> })
    });
    let give_up_if = optional(policy.give_up_if.as_ref().map(|path| {
        let name = names::joined(path);
        quote!(#name)
    }));
    let delay = optional(policy.delay.as_ref().map(|path| {
        let name = names::joined(path);
        quote!(::fsm::__private::DelayEntry { name: #name, function: #path })
    }));
    let catch = optional(policy.catch.as_ref().map(|path| quote_spanned!(path.span()=> <__Catch as ::fsm::__private::Verb>::ENTRY)));
    quote! {
        ::fsm::__private::PolicyEntry {
            max_attempts: #max_attempts,
            min: #min,
            max: #max,
            backoff: #backoff,
            jitter: #jitter,
            within: #within,
            give_up_on: &[#(#give_up_on),*],
            give_up_if: #give_up_if,
            delay: #delay,
            catch: #catch,
        }
    }
}

/// Returns a duration as tokens.
pub fn micros(duration: Duration) -> TokenStream {
    let us = u64::try_from(duration.as_micros()).expect("the grammar of durations ends below");
    quote!(::core::time::Duration::from_micros(#us))
}

/// Returns `Some` or `None` as tokens, with absolute paths, because the user may have a type named `Option`.
pub fn optional(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
