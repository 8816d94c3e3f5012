//! A retry policy in words, and as the fields of a form.

use fsm_core::duration;
use fsm_core::retry::Retry;
use maud::{Markup, html};
use serde::Deserialize;

use crate::format::{clean, span};

/// The steps of the simulator's sliders for durations.
pub(super) const DURATIONS: &str = "100ms 1s 2s 5s 10s 30s 1m 2m 5m 10m 30m 1h 2h 6h 12h 1d 2d 7d";
const RETRIES: &str = "0 1 2 3 4 5 6 8 10 12 15 20 25 30 40 50";
const BACKOFFS: &str = "1 1.2 1.5 2 2.5 3 4 5 8 10";
const JITTERS: &str = "0 0.05 0.1 0.2 0.3 0.5 1";

/// The fields of a policy, as a user typed them.
#[derive(Deserialize, Clone)]
#[serde(default)]
pub(crate) struct Fields {
    retries: String,
    min: String,
    max: String,
    backoff: String,
    jitter: String,
    within: String,
}

impl Default for Fields {
    fn default() -> Fields {
        let text = |text: &str| text.to_owned();
        Fields { retries: text("10"), min: text("5s"), max: text("1h"), backoff: text("2"), jitter: text("0"), within: text("") }
    }
}

impl Fields {
    /// The fields of a policy.
    pub(crate) fn of(policy: &Retry) -> Fields {
        Fields {
            retries: policy.max_attempts.map_or(String::new(), |most| most.saturating_sub(1).to_string()),
            min: duration::display(policy.min),
            max: duration::display(policy.max),
            backoff: policy.backoff.to_string(),
            jitter: policy.jitter.to_string(),
            within: policy.within.map_or(String::new(), duration::display),
        }
    }

    /// Returns the policy, or the reason why the fields are invalid.
    pub(crate) fn policy(&self) -> Result<Retry, String> {
        let span = |name: &str, text: &str| duration::parse(text.trim()).map_err(|error| format!("{name}: {error}"));
        let number = |name: &str, text: &str| text.trim().parse::<f64>().map_err(|_| format!("{name}: `{text}` is not a number"));
        let max_attempts = match self.retries.trim() {
            "" => None,
            text => Some(text.parse::<u32>().map_err(|_| format!("retries: `{text}` is not a whole number"))?.saturating_add(1)),
        };
        let policy = Retry {
            max_attempts,
            min: span("first wait", &self.min)?,
            max: span("longest wait", &self.max)?,
            backoff: number("backoff", &self.backoff)?,
            jitter: number("jitter", &self.jitter)?,
            within: if self.within.trim().is_empty() { None } else { Some(span("within", &self.within)?) },
            give_up_on: Vec::new(),
            give_up_if: None,
            delay: None,
            catch: None,
        };
        match policy.defect() {
            Some(defect) => Err(defect.to_string()),
            None => Ok(policy),
        }
    }

    /// The inputs of a form.
    pub(crate) fn inputs(&self) -> Markup {
        let field = |name: &str, label: &str, value: &str, steps: &str| {
            html! { label { (label) input name=(name) value=(clean(value)) size="8" maxlength="20" data-steps=(steps); } }
        };
        html! {
            (field("retries", "retries (empty: unlimited)", &self.retries, RETRIES))
            (field("min", "first wait", &self.min, DURATIONS))
            (field("max", "longest wait", &self.max, DURATIONS))
            (field("backoff", "backoff", &self.backoff, BACKOFFS))
            (field("jitter", "jitter (0.1 is 0–10 %)", &self.jitter, JITTERS))
            (field("within", "within (optional)", &self.within, DURATIONS))
        }
    }
}

/// The policy in words.
pub(crate) fn policy(retry: &Retry) -> String {
    let mut parts = vec![match retry.max_attempts {
        Some(attempts) => format!("{} retries", attempts.saturating_sub(1)),
        None => "unlimited retries".to_owned(),
    }];
    match &retry.delay {
        Some(delay) => parts.push(format!("after what {delay}() says")),
        None if retry.min == retry.max || retry.backoff <= 1.0 => parts.push(format!("every {}", duration::display(retry.min))),
        None => parts.push(format!("{} to {}, × {}", duration::display(retry.min), duration::display(retry.max), retry.backoff)),
    }
    if retry.jitter > 0.0 {
        parts.push(format!("jitter {:.0} %", retry.jitter * 100.0));
    }
    parts.extend(retry.within.map(|within| format!("within {}", duration::display(within))));
    parts.extend(retry.catch.as_ref().map(|catch| format!("then {catch}")));
    parts.join(", ")
}

/// The time from the first attempt to the last.
pub(super) fn total(retry: &Retry) -> String {
    if retry.delay.is_some() { "–".to_owned() } else { retry.schedule().total().map_or("never".to_owned(), span) }
}
