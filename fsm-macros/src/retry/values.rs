//! The values of single options. Each function is the rule of one option.

use std::time::Duration;

use syn::parse::ParseStream;
use syn::{Expr, ExprLit, ExprPath, Lit, LitInt, Path};

use crate::mistake::Mistakes;
use crate::names;

/// `retries = 10`.
pub fn retries(value: &Expr, mistakes: &mut Mistakes) -> Option<u32> {
    let count = whole("retries", value, mistakes)?;
    if count == u32::MAX {
        mistakes.add(
            value,
            format!("`{count}` retries are too many to count the first attempt as well"),
            "leave the count out for no limit",
        );
    }
    Some(count)
}

/// `max_attempts = 11`.
pub fn attempts(value: &Expr, mistakes: &mut Mistakes) -> Option<u32> {
    let count = whole("max_attempts", value, mistakes)?;
    if count == 0 {
        let message = "`max_attempts = 0` would never run the verb: it counts the first attempt, so it is 1 or more";
        mistakes.add(value, message, "write 1 for no retry; leave it out for no limit");
        return None;
    }
    Some(count)
}

/// `backoff = 2.0`.
pub fn backoff_does_not_shrink(value: &Expr, mistakes: &mut Mistakes) -> Option<f64> {
    let backoff = number("backoff", "2.0", value, mistakes)?;
    if backoff < 1.0 || !backoff.is_finite() {
        let message =
            format!("`backoff = {}` would make the waits shorter: each is multiplied by it, so it is 1.0 or more", names::joined(value));
        mistakes.add(value, message, "write `backoff = 2.0` to double, `1.0` to stay");
        return None;
    }
    Some(backoff)
}

/// `jitter = 0.1`.
pub fn jitter_is_a_share(value: &Expr, mistakes: &mut Mistakes) -> Option<f64> {
    let jitter = number("jitter", "0.1", value, mistakes)?;
    if !(0.0..=1.0).contains(&jitter) {
        let message = format!("`jitter = {}` is no share of the wait: it goes from 0.0 to 1.0", names::joined(value));
        mistakes.add(value, message, "write `jitter = 0.1` to add up to 10 %");
        return None;
    }
    Some(jitter)
}

fn whole(name: &str, value: &Expr, mistakes: &mut Mistakes) -> Option<u32> {
    let count = match value {
        Expr::Lit(ExprLit { lit: Lit::Int(count), .. }) => LitInt::base10_parse(count).ok(),
        _ => None,
    };
    if count.is_none() {
        let message = format!("`{}` is no count: `{name}` is a whole number up to {}", names::joined(value), u32::MAX);
        mistakes.add(value, message, format!("write `{name} = 10`; leave it out for no limit"));
    }
    count
}

fn number(name: &str, example: &str, value: &Expr, mistakes: &mut Mistakes) -> Option<f64> {
    let text = names::joined(value);
    let is_number = matches!(value, Expr::Unary(_) | Expr::Lit(ExprLit { lit: Lit::Float(_) | Lit::Int(_), .. }));
    let number = text.replace('_', "").parse().ok().filter(|_| is_number);
    if number.is_none() {
        mistakes.add(value, format!("`{text}` is no number, and `{name}` is one"), format!("write `{name} = {example}`"));
    }
    number
}

/// `give_up_if = is_permanent`, `delay = my_delay`, `catch = recover`.
pub fn path(name: &str, example: &str, value: &Expr, mistakes: &mut Mistakes) -> Option<Path> {
    match value {
        Expr::Path(ExprPath { qself: None, path, .. }) => Some(path.clone()),
        _ => {
            mistakes.add(
                value,
                format!("`{}` is no path: `{name}` names a function", names::joined(value)),
                format!("write `{name} = {example}`"),
            );
            None
        }
    }
}

/// Parses an expression, without the groups that `macro_rules!` fragments are wrapped in.
pub fn expression(input: ParseStream<'_>) -> syn::Result<Expr> {
    let mut expression = input.parse()?;
    while let Expr::Group(group) = expression {
        expression = *group.expr;
    }
    Ok(expression)
}

/// Parses the duration in the text of an option.
pub fn duration(value: &Expr, mistakes: &mut Mistakes) -> Option<Duration> {
    let help = fsm_core::duration::NotADuration::HELP;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        mistakes.add(value, format!("`{}` is not a duration: a duration is written in quotes", names::joined(value)), help);
        return None;
    };
    match fsm_core::duration::parse(&text.value()) {
        Ok(duration) => Some(duration),
        Err(error) => {
            mistakes.add(text, error.to_string(), help);
            None
        }
    }
}
