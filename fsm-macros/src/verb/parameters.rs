//! The parameters of a verb: their kinds, which follow from their types, and the rules of their order.

use syn::{FnArg, GenericArgument, Path, PathArguments, Signature, Type};

use crate::mistake::Mistakes;
use crate::names;

/// One parameter of a verb.
pub struct Parameter {
    /// The type as written.
    pub ty: Type,
    pub kind: Kind,
}

/// The kind of a parameter.
pub enum Kind {
    /// `&mut Ctx<'_>`, or with the verb whose machine checks `ctx.next`: `&mut Ctx<'_, created>`.
    Ctx(Option<Type>),
    /// `&mut R`.
    Record(Type),
    /// `Data<T>`.
    Data(Type),
    Event,
    /// `&T`, which is always a mistake.
    Shared(Type),
    /// `Ctx` that is not taken by `&mut`.
    WrongCtx,
    /// `impl Trait`.
    Generic,
}

/// Returns the kinds of the parameters in order, and reports those that are wrong.
pub fn check(signature: &Signature, mistakes: &mut Mistakes) -> Vec<Parameter> {
    let parameters: Vec<Parameter> = signature.inputs.iter().filter_map(parameter).collect();
    for rule in [ctx_is_taken_by_mut, ctx_comes_first, there_is_one_record, no_parameter_is_generic, no_parameter_is_a_shared_reference] {
        rule(&parameters, mistakes);
    }
    ctx_is_of_this_verb(signature, &parameters, mistakes);
    there_is_an_event(signature, &parameters, mistakes);
    there_is_one_event_and_it_is_last(&parameters, mistakes);
    parameters
}

fn parameter(argument: &FnArg) -> Option<Parameter> {
    let FnArg::Typed(typed) = argument else { return None };
    let ty = (*typed.ty).clone();
    Some(Parameter { kind: kind(&ty), ty })
}

fn kind(ty: &Type) -> Kind {
    match ty {
        Type::Reference(reference) => match (&*reference.elem, &reference.mutability) {
            (Type::Path(path), Some(_)) if is_ctx(&path.path) => Kind::Ctx(checked_verb(&path.path)),
            (Type::Path(path), None) if is_ctx(&path.path) => Kind::WrongCtx,
            (inner, Some(_)) => Kind::Record(inner.clone()),
            (inner, None) => Kind::Shared(inner.clone()),
        },
        Type::Path(path) if is_ctx(&path.path) => Kind::WrongCtx,
        Type::Path(path) => data(&path.path).map_or(Kind::Event, Kind::Data),
        Type::ImplTrait(_) => Kind::Generic,
        Type::Group(group) => kind(&group.elem),
        Type::Paren(paren) => kind(&paren.elem),
        _ => Kind::Event,
    }
}

/// What is probably the event of a function with mistakes: its last parameter, if that can be one.
pub fn event(signature: &Signature) -> Option<Type> {
    match signature.inputs.last().and_then(parameter)? {
        Parameter { kind: Kind::Event, ty } if matches!(ty, Type::Path(_)) => Some(ty),
        Parameter { kind: Kind::Shared(ty @ Type::Path(_)), .. } => Some(ty),
        _ => None,
    }
}

fn is_ctx(path: &Path) -> bool {
    names::ends_in(path, "Ctx")
}

/// Returns the `created` of `Ctx<'_, created>`.
fn checked_verb(path: &Path) -> Option<Type> {
    let PathArguments::AngleBracketed(arguments) = &path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}

/// Returns the `T` of `Data<T>`.
fn data(path: &Path) -> Option<Type> {
    let last = path.segments.last().filter(|last| names::is(&last.ident, "Data"))?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty.clone()),
        _ => None,
    }
}

fn ctx_is_taken_by_mut(parameters: &[Parameter], mistakes: &mut Mistakes) {
    for parameter in parameters.iter().filter(|parameter| matches!(parameter.kind, Kind::WrongCtx)) {
        let message = format!("`{}` is not how a verb takes its context: it borrows it mutably", names::joined(&parameter.ty));
        mistakes.add(&parameter.ty, message, "write `ctx: &mut Ctx<'_>`");
    }
}

fn ctx_comes_first(parameters: &[Parameter], mistakes: &mut Mistakes) {
    for parameter in parameters.iter().skip(1).filter(|parameter| matches!(parameter.kind, Kind::Ctx(_))) {
        let message = "`&mut Ctx` is not the first parameter: the order is the context, the record, `Data<T>`, the event";
        mistakes.add(&parameter.ty, message, "move `ctx: &mut Ctx<'_>` to the front");
    }
}

fn ctx_is_of_this_verb(signature: &Signature, parameters: &[Parameter], mistakes: &mut Mistakes) {
    for parameter in parameters {
        let Kind::Ctx(Some(verb)) = &parameter.kind else { continue };
        let is_own = matches!(verb, Type::Path(path) if path.path.is_ident(&signature.ident));
        if !is_own {
            let message = format!("`{}` is the context of another verb: `ctx.next` is checked for the verb itself", names::joined(verb));
            mistakes.add(
                verb,
                message,
                format!("write `ctx: &mut Ctx<'_, {}>`, or `ctx: &mut Ctx<'_>` without the check", signature.ident),
            );
        }
    }
}

fn there_is_one_record(parameters: &[Parameter], mistakes: &mut Mistakes) {
    let records = parameters.iter().filter(|parameter| matches!(parameter.kind, Kind::Record(_)));
    for second in records.skip(1) {
        let message = format!("`{}` is a second record: an instance has one, the machine's `keeps` type", names::joined(&second.ty));
        mistakes.add(&second.ty, message, "put both into one struct; shared values come as `Data<T>`");
    }
}

fn no_parameter_is_generic(parameters: &[Parameter], mistakes: &mut Mistakes) {
    for parameter in parameters.iter().filter(|parameter| matches!(parameter.kind, Kind::Generic)) {
        let message = format!(
            "`{}` is generic: a verb is registered, and only a function without type parameters can be",
            names::joined(&parameter.ty)
        );
        mistakes.add(&parameter.ty, message, "name the type; shared values behind a trait come as `Data<Box<dyn Trait>>`");
    }
}

fn no_parameter_is_a_shared_reference(parameters: &[Parameter], mistakes: &mut Mistakes) {
    for (i, parameter) in parameters.iter().enumerate() {
        let Kind::Shared(inner) = &parameter.kind else { continue };
        let (ty, inner) = (names::joined(&parameter.ty), names::joined(inner));
        if i + 1 == parameters.len() {
            mistakes.add(&parameter.ty, format!("a verb takes its event by value, not as `{ty}`"), format!("write `{inner}`"));
        } else {
            let help = format!("write `Data<{inner}>` for a shared value, or `&mut {inner}` for the machine's record");
            mistakes.add(&parameter.ty, format!("`{ty}` is nothing that a verb can be given"), help);
        }
    }
}

fn there_is_an_event(signature: &Signature, parameters: &[Parameter], mistakes: &mut Mistakes) {
    let may_be_it = |kind: &Kind| matches!(kind, Kind::Event | Kind::Generic | Kind::Shared(_));
    if !parameters.iter().any(|parameter| may_be_it(&parameter.kind)) {
        let message = format!("`{}` takes no event: the last parameter of a verb is the event that it carries out", signature.ident);
        mistakes.add(&signature.ident, message, "add `event: YourEvent` as the last parameter");
    }
}

fn there_is_one_event_and_it_is_last(parameters: &[Parameter], mistakes: &mut Mistakes) {
    let Some((last, others)) = parameters.split_last() else { return };
    for parameter in others.iter().filter(|parameter| matches!(parameter.kind, Kind::Event)) {
        let ty = names::joined(&parameter.ty);
        if matches!(last.kind, Kind::Event) {
            let help = format!(
                "write `Data<{ty}>` for a shared value, or `&mut {ty}` for the machine's record; \
                 if `{ty}` is another name for `Data<…>`, write that itself: a macro sees names only"
            );
            mistakes.add(&parameter.ty, format!("`{ty}` would be a second event: a verb takes one, as its last parameter"), help);
        } else {
            mistakes.add(&parameter.ty, format!("the event `{ty}` is not the last parameter"), "move it to the end");
        }
    }
}
