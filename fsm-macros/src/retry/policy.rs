//! The conversion of a retry directive's arguments into a policy, with the rules between them.

use std::time::Duration;

use fsm_core::duration::display;
use quote::ToTokens;
use syn::{Expr, Ident, Lit, Type};

use super::grammar::Argument;
use super::model::{Policy, Retry};
use super::values::{attempts, backoff_does_not_shrink, duration, jitter_is_a_share, path, retries};
use crate::mistake::Mistakes;
use crate::names;

/// The help text for a misused short form.
const SHORT: &str = "the short forms are `\"5s\"`, `\"5s\", \"10m\"`, `10, \"5s\"`, `10, \"5s\", \"1h\"` and `none`";
const NAMES: &str =
    "`retries`, `max_attempts`, `min`, `max`, `backoff`, `jitter`, `within`, `give_up_on(…)`, `give_up_if`, `delay` and `catch`";

/// The arguments by name.
#[derive(Default)]
struct Written {
    none: Option<Expr>,
    retries: Option<Expr>,
    max_attempts: Option<Expr>,
    min: Option<Expr>,
    max: Option<Expr>,
    backoff: Option<Expr>,
    jitter: Option<Expr>,
    within: Option<Expr>,
    give_up_on: Option<Vec<Type>>,
    give_up_if: Option<Expr>,
    delay: Option<Expr>,
    catch: Option<Expr>,
    /// True if the interval was given without a name. A single unnamed interval does not grow.
    is_short: bool,
    /// The number of arguments beside `none`.
    others: usize,
}

/// Returns the policy. `at` is the name of the directive, which general mistakes point at.
pub fn read(arguments: Vec<Argument>, at: &dyn ToTokens, mistakes: &mut Mistakes) -> Option<Retry> {
    let written = sort(arguments, mistakes);
    if let Some(none) = &written.none {
        none_stands_alone(none, &written, mistakes);
        return Some(Retry::Never);
    }
    one_count(&written, mistakes);
    a_delay_function_stands_alone(&written, mistakes);
    let max_attempts = max_attempts(&written, mistakes);
    there_is_a_delay(&written, max_attempts, at, mistakes);
    let (min, max, backoff) = interval(&written, mistakes);
    Some(Retry::Policy(Box::new(Policy {
        max_attempts,
        min,
        max,
        backoff,
        jitter: written.jitter.as_ref().and_then(|value| jitter_is_a_share(value, mistakes)).unwrap_or(0.0),
        within: written.within.as_ref().and_then(|value| duration(value, mistakes)),
        give_up_on: written.give_up_on.unwrap_or_default(),
        give_up_if: written.give_up_if.as_ref().and_then(|value| path("give_up_if", "is_permanent", value, mistakes)),
        delay: written.delay.as_ref().and_then(|value| path("delay", "my_delay", value, mistakes)),
        catch: written.catch.as_ref().and_then(|value| path("catch", "recover", value, mistakes)),
    })))
}

/// Sorts the arguments by name. The arguments of the short form are recognised by their type and position.
fn sort(arguments: Vec<Argument>, mistakes: &mut Mistakes) -> Written {
    let mut written = Written { others: arguments.len(), ..Written::default() };
    let mut named_before = false;
    for (i, argument) in arguments.into_iter().enumerate() {
        match argument {
            Argument::Plain(value) if is_none(&value) => {
                written.others -= 1;
                put(&mut written.none, "none", &value.clone(), value, mistakes);
            }
            Argument::Plain(value) if named_before => {
                mistakes.add(
                    &value,
                    format!("`{}` has no name: the short form comes before all that is named", names::joined(&value)),
                    SHORT,
                );
            }
            Argument::Plain(Expr::Lit(value)) if matches!(value.lit, Lit::Int(_)) && i == 0 => written.retries = Some(Expr::Lit(value)),
            Argument::Plain(Expr::Lit(value)) if matches!(value.lit, Lit::Str(_)) && written.min.is_none() => {
                written.is_short = true;
                written.min = Some(Expr::Lit(value));
            }
            Argument::Plain(Expr::Lit(value)) if matches!(value.lit, Lit::Str(_)) && written.max.is_none() => {
                written.max = Some(Expr::Lit(value))
            }
            Argument::Plain(value) => mistakes.add(
                &value,
                format!("`{}` does not fit here: an optional count is followed by one or two durations", names::joined(&value)),
                SHORT,
            ),
            Argument::GiveUpOn(name, types) => {
                named_before = true;
                put(&mut written.give_up_on, "give_up_on", &name, types, mistakes);
            }
            Argument::Named(name, value) => {
                named_before = true;
                named(&mut written, &name, value, mistakes);
            }
        }
    }
    written
}

fn named(written: &mut Written, name: &Ident, value: Expr, mistakes: &mut Mistakes) {
    let text = name.to_string();
    let slot = match text.as_str() {
        "retries" => &mut written.retries,
        "max_attempts" => &mut written.max_attempts,
        "min" => &mut written.min,
        "max" => &mut written.max,
        "backoff" => &mut written.backoff,
        "jitter" => &mut written.jitter,
        "within" => &mut written.within,
        "give_up_if" => &mut written.give_up_if,
        "delay" => &mut written.delay,
        "catch" => &mut written.catch,
        "give_up_on" => {
            return mistakes.add(name, "`give_up_on` lists error types in parentheses", "write `give_up_on(CardDeclined, Fraud)`");
        }
        _ => {
            let known =
                ["retries", "max_attempts", "min", "max", "backoff", "jitter", "within", "give_up_on", "give_up_if", "delay", "catch"];
            let help = match fsm_core::check::nearest(&text, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => SHORT.into(),
            };
            return mistakes.add(name, format!("unknown option `{text}`: the options are {NAMES}"), help);
        }
    };
    put(slot, &text, name, value, mistakes);
}

fn put<T>(slot: &mut Option<T>, name: &str, at: &dyn ToTokens, value: T, mistakes: &mut Mistakes) {
    if slot.is_some() {
        mistakes.add(at, format!("`{name}` is given twice"), "remove one; the short form gives `retries`, `min` and `max`");
    }
    *slot = Some(value);
}

fn is_none(value: &Expr) -> bool {
    matches!(value, Expr::Path(path) if path.path.is_ident("none"))
}

fn none_stands_alone(none: &Expr, written: &Written, mistakes: &mut Mistakes) {
    if written.others > 0 {
        mistakes.add(none, "`none` stands beside other options: it means that nothing is retried", "write `retry(none)`, or remove `none`");
    }
}

fn one_count(written: &Written, mistakes: &mut Mistakes) {
    if let (Some(_), Some(second)) = (&written.retries, &written.max_attempts) {
        let help = "keep one: `retries = 10` and `max_attempts = 11` are the same";
        mistakes.add(second, "the count is given twice: as retries and as `max_attempts`, which also counts the first attempt", help);
    }
}

fn a_delay_function_stands_alone(written: &Written, mistakes: &mut Mistakes) {
    if written.delay.is_none() {
        return;
    }
    for (name, value) in [("min", &written.min), ("max", &written.max), ("backoff", &written.backoff)] {
        if let Some(value) = value {
            let message = format!("`{name}` has no effect beside `delay`, whose function alone says how long to wait");
            mistakes.add(value, message, format!("remove `{name}`, or `delay`"));
        }
    }
}

/// A policy that retries must have a wait.
fn there_is_a_delay(written: &Written, max_attempts: Option<u32>, at: &dyn ToTokens, mistakes: &mut Mistakes) {
    let never_waits = max_attempts == Some(1);
    if written.min.is_some() || written.delay.is_some() || never_waits {
        return;
    }
    match (&written.retries.as_ref().or(written.max_attempts.as_ref()), &written.max) {
        (Some(count), None) => {
            let message = "a count without a delay: a policy says how long to wait before a retry";
            mistakes.add(
                count,
                message,
                "write `retry(10, \"5s\")` for ten retries 5 s apart, or add `min = \"5s\"` or `delay = my_delay`",
            );
        }
        (_, Some(max)) => {
            mistakes.add(max, "a maximum without a minimum: a policy says how long to wait before the first retry", "add `min = \"5s\"`")
        }
        (None, None) => {
            mistakes.add(
                at,
                "no delay: a policy says how long to wait before a retry",
                "write `retry(\"5s\")`, or add `min = \"5s\"` or `delay = my_delay`",
            );
        }
    }
}

fn max_attempts(written: &Written, mistakes: &mut Mistakes) -> Option<u32> {
    match (&written.max_attempts, &written.retries) {
        (Some(value), _) => attempts(value, mistakes),
        (None, Some(value)) => retries(value, mistakes)?.checked_add(1),
        (None, None) => None,
    }
}

/// Returns `min`, `max` and `backoff`, with defaults for the missing ones.
fn interval(written: &Written, mistakes: &mut Mistakes) -> (Duration, Duration, f64) {
    let backoff = written.backoff.as_ref().and_then(|value| backoff_does_not_shrink(value, mistakes));
    let min = written.min.as_ref().and_then(|value| duration(value, mistakes));
    let max = written.max.as_ref().and_then(|value| duration(value, mistakes));
    if let (Some(min), Some(max), Some(at)) = (min, max, &written.max) {
        min_is_not_above_max(min, max, at, mistakes);
    }
    let Some(min) = min else { return (Duration::from_secs(1), max.unwrap_or(DEFAULT_MAX), backoff.unwrap_or(2.0)) };
    // A single unnamed duration is a constant interval, unless a `backoff` is given.
    let grows = !written.is_short || backoff.is_some();
    let max = max.unwrap_or(if grows { DEFAULT_MAX.max(min) } else { min });
    (min, max, backoff.unwrap_or(2.0))
}

const DEFAULT_MAX: Duration = fsm_core::retry::Retry::DEFAULT_MAX;

fn min_is_not_above_max(min: Duration, max: Duration, at: &Expr, mistakes: &mut Mistakes) {
    if min > max {
        let message =
            format!("the maximum `{}` is below the minimum `{}`: the wait grows from one to the other", display(max), display(min));
        mistakes.add(at, message, "swap them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Policy>, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let at: syn::Path = syn::parse_quote!(retry);
        let retry = super::super::parse(text.parse().expect("tokens"), at, &mut mistakes);
        match retry {
            Some(Retry::Policy(policy)) => Ok(Some(*policy)),
            Some(Retry::Never) => Ok(None),
            None => Err(mistakes.messages()),
        }
    }

    #[test]
    fn forms_that_are_read() {
        // Count of attempts, min, max, backoff.
        let cases: [(&str, Option<u32>, &str, &str, f64); 15] = [
            (r#""5s""#, None, "5s", "5s", 2.0),
            (r#""5s", "10m""#, None, "5s", "10m", 2.0),
            (r#"10, "5s""#, Some(11), "5s", "5s", 2.0),
            (r#"10, "5s", "1h""#, Some(11), "5s", "1h", 2.0),
            (r#"10, "5s", "1h","#, Some(11), "5s", "1h", 2.0),
            (r#"retries = 10, min = "5s""#, Some(11), "5s", "1h", 2.0),
            (r#"max_attempts = 11, min = "5s""#, Some(11), "5s", "1h", 2.0),
            (r#"min = "2h""#, None, "2h", "2h", 2.0),
            (r#"min = "5s", max = "10m", backoff = 3"#, None, "5s", "10m", 3.0),
            (r#"10, "5s", backoff = 1.5"#, Some(11), "5s", "1h", 1.5),
            (r#"10, "5s", max = "1h""#, Some(11), "5s", "1h", 2.0),
            (r#"10, min = "5s", max = "5s""#, Some(11), "5s", "5s", 2.0),
            (r#"max_attempts = 1, catch = recover"#, Some(1), "1s", "1h", 2.0),
            (r#"delay = my_delay"#, None, "1s", "1h", 2.0),
            (r#"10, delay = delays::my_delay, within = "24h""#, Some(11), "1s", "1h", 2.0),
        ];
        for (text, max_attempts, min, max, backoff) in cases {
            let policy = parsed(text).unwrap_or_else(|messages| panic!("{text}: {messages:?}")).unwrap();
            let found = (policy.max_attempts, display(policy.min), display(policy.max), policy.backoff);
            assert_eq!(found, (max_attempts, min.to_owned(), max.to_owned(), backoff), "{text}");
        }
        assert!(parsed("none").unwrap().is_none());
    }

    #[test]
    fn the_rest_of_the_named_form() {
        let text = r#"10, "5s", "1h", jitter = 0.1, within = "24h", give_up_on(CardDeclined, risk::Fraud<'static>), give_up_if = is_permanent, catch = recovery::recover"#;
        let policy = parsed(text).unwrap().unwrap();
        assert_eq!((policy.jitter, policy.within), (0.1, Some(Duration::from_secs(86_400))));
        assert_eq!(policy.give_up_on.iter().map(names::joined).collect::<Vec<_>>(), ["CardDeclined", "risk::Fraud<'static>"]);
        assert_eq!(policy.give_up_if.map(names::joined).as_deref(), Some("is_permanent"));
        assert_eq!((policy.catch.map(names::joined).as_deref(), policy.delay.is_none()), (Some("recovery::recover"), true));
    }

    #[test]
    fn forms_that_are_refused() {
        let cases = [
            ("", "no delay"),
            ("10", "a count without a delay"),
            ("max_attempts = 3", "a count without a delay"),
            (r#"max = "5s""#, "a maximum without a minimum"),
            (r#"within = "5s""#, "no delay"),
            (r#"max_attempts = 0, min = "5s""#, "`max_attempts = 0` would never run"),
            (r#""10m", "5s""#, "the maximum `5s` is below the minimum `10m`"),
            (r#"10, retries = 10, min = "5s""#, "`retries` is given twice"),
            (r#"10, "5s", max_attempts = 11"#, "the count is given twice"),
            (r#""5s", min = "5s""#, "`min` is given twice"),
            (r#""5s", backoff = 0.5"#, "`backoff = 0.5` would make"),
            (r#""5s", backoff = -2"#, "`backoff = -2` would make"),
            (r#""5s", jitter = 1.5"#, "`jitter = 1.5` is no share"),
            (r#""5s", jitter = "10%""#, "`\"10%\"` is no number"),
            (r#"delay = my_delay, min = "5s""#, "`min` has no effect beside `delay`"),
            (r#"delay = |f| None"#, "`|f|None` is no path"),
            (r#"none, "5s""#, "`none` stands beside"),
            (r#""5s", none"#, "`none` stands beside"),
            (r#""5 s""#, "`5 s` is not a duration"),
            (r#"min = 5"#, "`5` is not a duration: a duration is written in quotes"),
            (r#"-1, "5s""#, "`-1` does not fit here"),
            (r#"10, 10, "5s""#, "`10` does not fit here"),
            (r#""1s", "2s", "3s""#, "`\"3s\"` does not fit here"),
            (r#"jitter = 0.1, "5s""#, "`\"5s\"` has no name"),
            (r#"4294967295, "5s""#, "`4294967295` retries are too many"),
            (r#"4294967296, "5s""#, "`4294967296` is no count"),
            (r#""5s", mx = "1h""#, "unknown option `mx`"),
            (r#""5s", give_up_on = Fraud"#, "`give_up_on` lists"),
            (r#""5s", give_up(Fraud)"#, "unknown option `give_up(…)`"),
        ];
        for (text, start) in cases {
            let Err(messages) = parsed(text) else { panic!("{text} is read") };
            assert!(messages.iter().any(|message| message.starts_with(start)), "{text}: {messages:#?}");
        }
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let messages = parsed(r#"max_attempts = 0, min = "5 s", max = "x", jitter = 2, backoff = 0.1"#).err().expect("five mistakes");
        assert_eq!(messages.len(), 5, "{messages:#?}");
    }
}
