//! The output of `#[verb]` beside the function: a type with its name, and its registration.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::function::{Function, Head};
use super::options::Options;
use super::parameters::{self, Kind, Parameter};
use crate::names;
use crate::retry::{self, Retry};

/// Returns the type, its traits, its entry and the registration of the entry.
pub fn verb(function: &Function, head: &Head, options: &Options, retry: &Option<Retry>) -> TokenStream {
    let ident = &function.signature.ident;
    let event_type = &head.parameters.last().expect("the event was found").ty;
    let event = names::event(event_type);
    let catch = match retry {
        Some(Retry::Policy(policy)) => policy.catch.as_ref(),
        _ => None,
    };
    let declared = declared(function, event_type, catch);
    let catch_check = catch.map(|path| catch_check(ident, path, event_type));
    let is_checked = head.parameters.iter().any(|parameter| matches!(parameter.kind, Kind::Ctx(Some(_))));
    let checked = if is_checked { quote!(Self) } else { quote!(::fsm::__private::Unchecked) };
    let keeps = keeps(ident, event_type, &head.parameters);
    let run = run(ident, head, options, &event, retry);
    let retry::Emitted { policy, entry: retry } = retry::emit(retry);
    let entry = entry(function, head, options, &retry, &event);
    quote! {
        #declared
        const _: () = {
            #catch_check
            #policy
            #run
            #entry
            #[automatically_derived]
            impl<__Catch> ::fsm::__private::Verb for #ident<#event_type, __Catch> {
                type Event = #event_type;
                type Catch = __Catch;
                type Checked = #checked;
                const EVENT: &'static str = #event;
                const ENTRY: &'static ::fsm::__private::VerbEntry = &__ENTRY;
            }
            #keeps
            ::fsm::__private::inventory::submit! { ::fsm::__private::VerbRef(&__ENTRY) }
        };
    }
}

/// For a function with mistakes: a stub of the verb, so that `fsm!` reports no further mistakes about it. It has the event if that is known.
pub fn stub(function: &Function) -> TokenStream {
    let ident = &function.signature.ident;
    let event = parameters::event(&function.signature);
    let name = event.as_ref().map_or_else(|| ident.unraw().to_string(), names::event);
    let event = event.map_or_else(|| quote!(#ident), |event| quote!(#event));
    let visibility = &function.visibility;
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #visibility enum #ident {}
        const _: () = {
            #[automatically_derived]
            impl ::fsm::__private::Verb for #ident {
                type Event = #event;
                type Catch = ::fsm::__private::NoCatch;
                type Checked = ::fsm::__private::Unchecked;
                const EVENT: &'static str = #name;
                const ENTRY: &'static ::fsm::__private::VerbEntry = &::fsm::__private::MISTAKEN;
            }
            #[automatically_derived]
            impl<__Record> ::fsm::__private::Keeps<__Record> for #ident {}
            #[automatically_derived]
            impl ::fsm::__private::KeepsNothing for #ident {}
        };
    }
}

/// Declares the type. The event and the catch verb are type parameters with defaults, which nobody sets: as associated types alone, they
/// would have to be as visible as the function.
fn declared(function: &Function, event_type: &syn::Type, catch: Option<&syn::Path>) -> TokenStream {
    let (visibility, ident) = (&function.visibility, &function.signature.ident);
    let catch = catch.map_or(quote!(::fsm::__private::NoCatch), |path| quote!(#path));
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code, private_bounds, private_interfaces, missing_debug_implementations)]
        #visibility enum #ident<__Event = #event_type, __Catch = #catch> {
            __Named(::core::marker::PhantomData<(__Event, __Catch)>),
        }
    }
}

/// Checks that the catch verb takes the event of this verb's exhausted calls.
fn catch_check(ident: &Ident, catch: &syn::Path, event_type: &syn::Type) -> TokenStream {
    quote_spanned! {catch.span()=>
        type __Catch = <#ident as ::fsm::__private::Verb>::Catch;
        const _: () = ::fsm::__private::catches::<<__Catch as ::fsm::__private::Verb>::Event, #event_type>();
    }
}

/// Implements the traits that say which records the verb can run with: its own, or any if it takes none.
fn keeps(ident: &Ident, event_type: &syn::Type, parameters: &[Parameter]) -> TokenStream {
    match record(parameters) {
        Some(record) => quote! {
            #[automatically_derived]
            impl<__Catch> ::fsm::__private::Keeps<#record> for #ident<#event_type, __Catch> {}
        },
        None => quote! {
            #[automatically_derived]
            impl<__Record, __Catch> ::fsm::__private::Keeps<__Record> for #ident<#event_type, __Catch> {}
            #[automatically_derived]
            impl<__Catch> ::fsm::__private::KeepsNothing for #ident<#event_type, __Catch> {}
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
    let heartbeat = retry::optional(options.heartbeat.map(retry::micros));
    let kind = if options.is_blocking { format_ident!("Blocking") } else { format_ident!("Async") };
    let limit = retry::optional(options.limit.as_ref().map(|name| quote!(#name)));
    let event_type = &head.parameters.last().expect("the event was found").ty;
    let data = head.parameters.iter().filter_map(|parameter| match &parameter.kind {
        Kind::Data(ty) => Some(quote_spanned!(ty.span()=> ::fsm::__private::data_entry::<#ty>())),
        _ => None,
    });
    quote! {
        static __DATA: &[::fsm::__private::DataEntry] = &[#(#data),*];
        fn __decodes(__bytes: &[u8]) -> ::core::option::Option<::std::string::String> {
            use ::fsm::__private::{DecodingAny as _, DecodingReadable as _};
            (&&::fsm::__private::Decoding::<#event_type>::NEW).why_not(__bytes)
        }
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
            limit: #limit,
            heartbeat: #heartbeat,
            data: __DATA,
            decodes: __decodes,
            run: ::fsm::__private::Run::#kind(__run),
        };
    }
}

/// Returns the function that runs one attempt.
fn run(ident: &Ident, head: &Head, options: &Options, event: &str, retry: &Option<Retry>) -> TokenStream {
    let (ctx, input) = (local("ctx"), local("input"));
    let Arguments { reads, passed, kept } = arguments(&head.parameters, event, &ctx, &input);
    // The compiler's errors about these two variables are about the return type, so they have its location.
    let at = head.returns.span();
    let (outcome, error) = (Ident::new("__outcome", at), Ident::new("__error", at));
    let call = match options.is_blocking {
        true => quote_spanned!(ident.span()=> #ident(#(#passed),*)),
        false => quote_spanned!(ident.span()=> ::fsm::__private::assert_send(#ident(#(#passed),*)).await),
    };
    let returned = quote_spanned!(at=> ::fsm::__private::returned(#outcome));
    let failed = failed(&error, retry);
    let run = format_ident!("__run");
    let body = quote! {
        #reads
        let #outcome = #call;
        match #returned {
            ::core::result::Result::Ok(()) => #kept,
            ::core::result::Result::Err(#error) => ::core::result::Result::Err(#failed),
        }
    };
    let (returns, body) = match options.is_blocking {
        true => (quote!(::fsm::__private::Ended), body),
        false => (quote!(::fsm::__private::Running<'a>), quote!(::std::boxed::Box::pin(async move { #body }))),
    };
    quote! {
        #[allow(unused_variables)]
        fn #run<'a>(#ctx: &'a mut ::fsm::__private::Ctx<'_>, #input: ::fsm::__private::Input<'a>) -> #returns {
            use ::fsm::__private::{ThrownPlain as _, ThrownRetryable as _};
            #body
        }
    }
}

/// The arguments of the call of the verb.
struct Arguments {
    /// The statements that decode the input.
    reads: TokenStream,
    /// An expression for each parameter.
    passed: Vec<TokenStream>,
    /// The expression for the encoded record after the call.
    kept: TokenStream,
}

fn arguments(parameters: &[Parameter], event: &str, ctx: &Ident, input: &Ident) -> Arguments {
    let record = local("record");
    let mut reads = TokenStream::new();
    let mut passed = Vec::new();
    let mut kept = quote!(::core::result::Result::Ok(::core::option::Option::None));
    for (i, Parameter { ty, kind }) in parameters.iter().enumerate() {
        let at = ty.span();
        match kind {
            Kind::Ctx(None) => passed.push(quote!(#ctx)),
            Kind::Ctx(Some(verb)) => passed.push(quote_spanned!(at=> &mut ::fsm::__private::checked::<#verb>(#ctx))),
            Kind::Record(ty) => {
                let name = names::joined(ty);
                reads.extend(quote_spanned!(at=> let mut #record = ::fsm::__private::decode_record::<#ty>(#name, #input.record)?;));
                passed.push(quote!(&mut #record));
                kept = quote_spanned!(at=> ::fsm::__private::encode_record::<#ty>(#name, &#record));
            }
            Kind::Data(ty) => {
                let data = local(&format!("data_{i}"));
                reads.extend(quote_spanned!(at=> let #data = ::fsm::__private::data::<#ty>(&*#ctx);));
                passed.push(quote!(#data));
            }
            _ => {
                let value = local("event");
                reads.extend(quote_spanned!(at=> let #value = ::fsm::__private::decode_event::<#ty>(#event, #input.event)?;));
                passed.push(quote!(#value));
            }
        }
    }
    Arguments { reads, passed, kept }
}

/// Returns the failure for the verb's error. `give_up_if` may make it permanent.
fn failed(error: &Ident, retry: &Option<Retry>) -> TokenStream {
    let failed = quote_spanned!(error.span()=> (&&::fsm::__private::Thrown::new(#error)).failure());
    let Some(Retry::Policy(policy)) = retry else { return failed };
    let Some(function) = &policy.give_up_if else { return failed };
    let is_final = local("is_final");
    let judged = quote_spanned!(function.span()=> ::fsm::__private::give_up_if(&#error, #function));
    quote!({
        let #is_final = #judged;
        ::fsm::__private::judged(#failed, #is_final)
    })
}

/// Returns a local variable that cannot collide with a name of the user.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
