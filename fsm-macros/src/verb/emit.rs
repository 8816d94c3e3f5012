//! What `#[verb]` leaves beside a function: a type of its name, and its registration.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::function::{Function, Head};
use super::options::Options;
use super::parameters::{Kind, Parameter};
use crate::names;
use crate::retry::{self, Retry};

/// The type, its traits, its entry and the entry's registration.
pub fn verb(function: &Function, head: &Head, options: &Options, retry: &Option<Retry>) -> TokenStream {
    let ident = &function.signature.ident;
    let event_type = &head.parameters.last().expect("the event was found").ty;
    let event = names::event(event_type);
    let declared = declared(function);
    let catch_check = catch_check(retry, event_type);
    let retry::Emitted { items: policy, entry: retry, catch } = retry::emit(retry);
    let keeps = keeps(ident, &head.parameters);
    let run = run(ident, head, &event);
    let entry = entry(function, head, options, &retry, &event);
    quote! {
        #declared
        const _: () = {
            #policy
            #catch_check
            #run
            #entry
            #[automatically_derived]
            impl ::fsm::__private::Verb for #ident {
                type Event = #event_type;
                type Catch = #catch;
                const EVENT: &'static str = #event;
                const ENTRY: &'static ::fsm::__private::VerbEntry = &__ENTRY;
            }
            #keeps
            ::fsm::__private::inventory::submit! { ::fsm::__private::VerbRef(&__ENTRY) }
        };
    }
}

/// For a function with mistakes: enough of a verb for `fsm!` to stay silent about it.
pub fn stub(function: &Function) -> TokenStream {
    let ident = &function.signature.ident;
    let name = ident.unraw().to_string();
    let declared = declared(function);
    quote! {
        #declared
        const _: () = {
            #[automatically_derived]
            impl ::fsm::__private::Verb for #ident {
                type Event = #ident;
                type Catch = ::fsm::__private::NoCatch;
                const EVENT: &'static str = #name;
                const ENTRY: &'static ::fsm::__private::VerbEntry = &::fsm::__private::MISTAKEN;
            }
            #[automatically_derived]
            impl<R> ::fsm::__private::Keeps<R> for #ident {}
            #[automatically_derived]
            impl ::fsm::__private::KeepsNothing for #ident {}
        };
    }
}

fn declared(function: &Function) -> TokenStream {
    let (visibility, ident) = (&function.visibility, &function.signature.ident);
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #visibility enum #ident {}
    }
}

/// The verb that catches must take what is caught here.
fn catch_check(retry: &Option<Retry>, event_type: &syn::Type) -> TokenStream {
    let Some(Retry::Policy(policy)) = retry else { return TokenStream::new() };
    let Some(catch) = &policy.catch else { return TokenStream::new() };
    quote_spanned! {catch.span()=>
        const _: () = ::fsm::__private::catches::<<__Catch as ::fsm::__private::Verb>::Event, #event_type>();
    }
}

/// Which records the verb can run with: its own, or all if it takes none.
fn keeps(ident: &Ident, parameters: &[Parameter]) -> TokenStream {
    match record(parameters) {
        Some(record) => quote! {
            #[automatically_derived]
            impl ::fsm::__private::Keeps<#record> for #ident {}
        },
        None => quote! {
            #[automatically_derived]
            impl<R> ::fsm::__private::Keeps<R> for #ident {}
            #[automatically_derived]
            impl ::fsm::__private::KeepsNothing for #ident {}
        },
    }
}

fn record(parameters: &[Parameter]) -> Option<&syn::Type> {
    parameters.iter().find_map(|parameter| match &parameter.kind {
        Kind::Record(ty) => Some(ty),
        _ => None,
    })
}

fn entry(function: &Function, head: &Head, options: &Options, retry: &TokenStream, event: &str) -> TokenStream {
    let ident = &function.signature.ident;
    let (name, docs) = (ident.unraw().to_string(), names::docs(&function.attributes));
    let line = u32::try_from(ident.span().start().line).expect("a file has fewer lines");
    let timeout = retry::optional(options.timeout.map(retry::micros));
    let event_type = &head.parameters.last().expect("the event was found").ty;
    let data = head.parameters.iter().filter_map(|parameter| match &parameter.kind {
        Kind::Data(ty) => Some(quote_spanned!(ty.span()=> ::fsm::__private::data_entry::<#ty>())),
        _ => None,
    });
    quote! {
        static __DATA: &[::fsm::__private::DataEntry] = &[#(#data),*];
        static __ENTRY: ::fsm::__private::VerbEntry = ::fsm::__private::VerbEntry {
            name: #name,
            module: ::core::module_path!(),
            docs: #docs,
            file: ::core::file!(),
            line: #line,
            event: #event,
            event_type: ::core::any::TypeId::of::<#event_type>,
            timeout: #timeout,
            retry: #retry,
            data: __DATA,
            run: __run,
        };
    }
}

/// The function that runs one attempt.
fn run(ident: &Ident, head: &Head, event: &str) -> TokenStream {
    let ctx = local("ctx");
    let input = local("input");
    let record = local("record");
    let mut reads = TokenStream::new();
    let mut arguments = Vec::new();
    let mut kept = quote!(::core::result::Result::Ok(::core::option::Option::None));
    for (i, Parameter { ty, kind }) in head.parameters.iter().enumerate() {
        let at = ty.span();
        match kind {
            Kind::Ctx => arguments.push(quote!(#ctx)),
            Kind::Record(ty) => {
                let name = names::joined(ty);
                reads.extend(quote_spanned!(at=> let mut #record = ::fsm::__private::decode_record::<#ty>(#name, #input.record)?;));
                arguments.push(quote!(&mut #record));
                kept = quote_spanned!(at=> ::fsm::__private::encode_record::<#ty>(#name, &#record));
            }
            Kind::Data(ty) => {
                let data = local(&format!("data_{i}"));
                reads.extend(quote_spanned!(at=> let #data = ::fsm::__private::data::<#ty>(&*#ctx);));
                arguments.push(quote!(#data));
            }
            _ => {
                let value = local("event");
                reads.extend(quote_spanned!(at=> let #value = ::fsm::__private::decode_event::<#ty>(#event, #input.event)?;));
                arguments.push(quote!(#value));
            }
        }
    }
    let (outcome, error) = (local("outcome"), local("error"));
    let call = quote_spanned!(ident.span()=> ::fsm::__private::assert_send(#ident(#(#arguments),*)).await);
    let returned = quote_spanned!(head.returns.span()=> ::fsm::__private::returned(#outcome));
    let failed = quote_spanned!(head.returns.span()=> (&&::fsm::__private::Thrown::new(#error)).failure());
    let run = format_ident!("__run");
    quote! {
        #[allow(unused_variables)]
        fn #run<'a>(#ctx: &'a mut ::fsm::__private::Ctx<'_>, #input: ::fsm::__private::Input<'a>) -> ::fsm::__private::Running<'a> {
            use ::fsm::__private::{ThrownPlain as _, ThrownRetryable as _};
            ::std::boxed::Box::pin(async move {
                #reads
                let #outcome = #call;
                match #returned {
                    ::core::result::Result::Ok(()) => #kept,
                    ::core::result::Result::Err(#error) => ::core::result::Result::Err(#failed),
                }
            })
        }
    }
}

/// A local variable that no name of the user can meet.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
