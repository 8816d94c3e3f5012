//! A retry policy as a table of attempts and a chart of its waits, with an outage that it has to survive.

use std::time::Duration;

use axum::extract::Query;
use axum::response::Response;
use fsm_core::duration;
use fsm_core::retry::Retry;
use fsm_core::schedule::Planned;
use fsm_core::time::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::machine::{policy, total};
use crate::format::span;
use crate::layout::{Page, document};
use crate::shared::Asked;

/// The attempts that are shown of a policy without an end.
const MOST: usize = 50;

#[derive(Deserialize)]
#[serde(default)]
pub(crate) struct Parameters {
    retries: String,
    min: String,
    max: String,
    backoff: String,
    jitter: String,
    within: String,
    outage: String,
}

impl Default for Parameters {
    fn default() -> Parameters {
        let text = |text: &str| text.to_owned();
        Parameters {
            retries: text("10"),
            min: text("5s"),
            max: text("1h"),
            backoff: text("2"),
            jitter: text("0"),
            within: text(""),
            outage: text("30m"),
        }
    }
}

impl Parameters {
    /// The policy, or what is wrong with it.
    fn policy(&self) -> Result<Retry, String> {
        let span = |name: &str, text: &str| duration::parse(text).map_err(|error| format!("{name}: {error}"));
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
}

pub(crate) async fn show(asked: Asked, Query(parameters): Query<Parameters>) -> Response {
    let now = Timestamp::from(std::time::SystemTime::now());
    let outcome = match parameters.policy() {
        Ok(retry) => planned(&retry, duration::parse(&parameters.outage).unwrap_or_default()),
        Err(defect) => html! { p class="notice bad" { (defect) } },
    };
    document(&asked, &Page::new("Simulator", "/simulator", now).section("policy", form(&parameters)).section("attempts", outcome))
}

fn form(parameters: &Parameters) -> Markup {
    let field = |name: &str, label: &str, value: &str| html! { label { (label) input name=(name) value=(value) size="8"; } };
    html! {
        form class="fields" method="get" {
            (field("retries", "retries (empty: unlimited)", &parameters.retries))
            (field("min", "first wait", &parameters.min))
            (field("max", "longest wait", &parameters.max))
            (field("backoff", "backoff", &parameters.backoff))
            (field("jitter", "jitter (0.1 is 0–10 %)", &parameters.jitter))
            (field("within", "within (optional)", &parameters.within))
            (field("outage", "an outage of", &parameters.outage))
            button { "Simulate" }
        }
    }
}

fn planned(retry: &Retry, outage: Duration) -> Markup {
    let attempts: Vec<Planned> = retry.schedule().attempts().take(MOST).collect();
    let is_cut = attempts.len() == MOST;
    let after = attempts.iter().find(|planned| planned.at >= outage);
    let longest = attempts.iter().map(|planned| planned.wait).max().unwrap_or_default().as_secs_f64().max(1e-9);
    html! {
        p { (policy(retry)) "; from the first attempt to the last: " strong { (total(retry)) } "." }
        @match after {
            Some(planned) => p class="notice good" { "It survives an outage of " (span(outage)) ": attempt " (planned.attempt) " starts " (span(planned.at)) " after the first." }
            None if is_cut => p class="notice warn" { "The first " (MOST) " attempts all start within an outage of " (span(outage)) "." }
            None => p class="notice bad" { "It does not survive an outage of " (span(outage)) ": all attempts start before its end." }
        }
        svg class="waits" viewBox={ "0 0 " (attempts.len() * 12) " 80" } role="img" aria-label="the wait before each attempt" {
            @for (place, planned) in attempts.iter().enumerate() {
                @let height = planned.wait.as_secs_f64() / longest * 76.0;
                rect class=(if planned.at < outage { "bar bad" } else { "bar" }) x=(place * 12) y=(format!("{:.1}", 80.0 - height)) width="10" height=(format!("{height:.1}")) {}
            }
        }
        div class="wide" { table {
            thead { tr { th class="number" { "attempt" } th class="number" { "wait" } th class="number" { "after the first" } } }
            tbody { @for planned in &attempts { tr { td class="number" { (planned.attempt) } td class="number" { (span(planned.wait)) } td class="number" { (span(planned.at)) } } } }
        } }
        @if is_cut { p class="quiet" { "The first " (MOST) " attempts are shown." } }
    }
}
