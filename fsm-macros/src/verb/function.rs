//! The function under `#[verb]`: its head is parsed and checked, and its body is passed on as it is.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, GenericParam, Meta, ReturnType, Safety, Signature, Visibility};

use super::parameters::{self, Parameter};
use crate::mistake::Mistakes;
use crate::names;
use crate::retry::{self, Retry};

/// A function as it was written.
pub struct Function {
    pub attributes: Vec<Attribute>,
    pub visibility: Visibility,
    pub signature: Signature,
    body: TokenStream,
}

/// The head of a verb that keeps all rules.
pub struct Head {
    pub parameters: Vec<Parameter>,
    pub returns: syn::Type,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Function> {
        Ok(Function {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Function { attributes, visibility, signature, body } = self;
        tokens.extend(quote!(#(#attributes)* #visibility #signature #body));
    }
}

impl Function {
    /// True if there are conditions (`#[cfg]`, `#[cfg_attr]`) below `#[verb]` that the compiler has not evaluated yet.
    pub fn has_conditions(&self) -> bool {
        self.attributes.iter().any(is_condition)
    }

    /// Returns the function with `#[verb]` below its conditions, so that the compiler evaluates them first.
    pub fn below_its_conditions(&self, options: TokenStream) -> TokenStream {
        let (conditions, others): (Vec<_>, Vec<_>) = self.attributes.iter().partition(|attribute| is_condition(attribute));
        let Function { visibility, signature, body, .. } = self;
        quote!(#(#conditions)* #[::fsm::verb(#options)] #(#others)* #visibility #signature #body)
    }

    /// Removes the `#[retry(…)]` attributes from the function and returns them, with any path.
    pub fn take_retries(&mut self) -> Vec<Attribute> {
        let (retries, others) = self.attributes.drain(..).partition(|attribute| names::ends_in(attribute.path(), "retry"));
        self.attributes = others;
        retries
    }
}

/// Returns the policy in the attributes.
pub fn retry(retries: &[Attribute], mistakes: &mut Mistakes) -> Option<Retry> {
    for second in retries.iter().skip(1) {
        mistakes.add(second, "a second `#[retry]`: a verb has one policy", "put all of it into one `#[retry(…)]`");
    }
    let first = retries.first()?;
    let options = match &first.meta {
        Meta::List(list) => list.tokens.clone(),
        _ => TokenStream::new(),
    };
    retry::parse(options, first.path(), mistakes)
}

fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg_attr") || attribute.path().is_ident("cfg")
}

/// Returns the head of the function; `None` if it breaks a rule.
pub fn check(function: &Function, is_blocking: bool, mistakes: &mut Mistakes) -> Option<Head> {
    let signature = &function.signature;
    if let Some(receiver) = signature.receiver() {
        let help = "move it out of the `impl` block; shared values come as `Data<T>`";
        mistakes.add(receiver, "a verb is a free function, not a method: it takes no `self`", help);
        return None;
    }
    let mut found = Mistakes::default();
    if is_blocking {
        it_is_plain(signature, &mut found)
    } else {
        it_is_async(signature, &mut found)
    }
    it_is_safe(signature, &mut found);
    it_is_not_generic(signature, &mut found);
    let returns = it_returns_a_result(signature, &mut found);
    let parameters = parameters::check(signature, &mut found);
    let is_sound = found.is_empty();
    mistakes.append(found);
    returns.filter(|_| is_sound).map(|returns| Head { parameters, returns })
}

fn it_is_async(signature: &Signature, mistakes: &mut Mistakes) {
    if signature.asyncness.is_none() {
        let help = format!("write `async fn {}`, or `#[verb(blocking)]` if the function blocks its thread", signature.ident);
        mistakes.add(signature.fn_token, "this function is not async: a verb is an `async fn`", help);
    }
}

fn it_is_plain(signature: &Signature, mistakes: &mut Mistakes) {
    if let Some(word) = &signature.asyncness {
        let help = format!("write `fn {}`, or remove `blocking`", signature.ident);
        mistakes.add(word, "this function is async: a verb that blocks its thread is a plain `fn`", help);
    }
}

fn it_is_safe(signature: &Signature, mistakes: &mut Mistakes) {
    if let Safety::Unsafe(word) = &signature.safety {
        mistakes.add(
            word,
            "this function is unsafe: the engine calls a verb, and promises it nothing",
            "write `async fn`, with the unsafe block inside",
        );
    }
}

fn it_is_not_generic(signature: &Signature, mistakes: &mut Mistakes) {
    for parameter in &signature.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            let message =
                format!("`{}` is generic: a verb is registered, and only a function without type parameters can be", signature.ident);
            mistakes.add(parameter, message, "name the type; shared values behind a trait come as `Data<Box<dyn Trait>>`");
        }
    }
}

fn it_returns_a_result(signature: &Signature, mistakes: &mut Mistakes) -> Option<syn::Type> {
    let help = "write `-> Result`, which is `Result<(), Failure>`, or `-> Result<(), YourError>`";
    match &signature.output {
        ReturnType::Default => {
            mistakes.add(
                &signature.ident,
                format!("`{}` returns nothing: a verb says with a `Result` whether the attempt succeeded", signature.ident),
                help,
            );
            None
        }
        ReturnType::Type(_, ty) if matches!(**ty, syn::Type::Path(_) | syn::Type::Macro(_) | syn::Type::Group(_)) => Some((**ty).clone()),
        ReturnType::Type(_, ty) => {
            mistakes.add(ty, format!("a verb returns a `Result`, not `{}`", names::joined(ty)), help);
            None
        }
    }
}
