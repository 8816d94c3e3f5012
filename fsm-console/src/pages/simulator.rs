//! A retry policy as a table of attempts and a chart of its waits, with an outage that it has to survive. The script adds a slider to each field.

use std::time::Duration;

use axum::extract::Query;
use axum::response::Response;
use fsm_core::duration;
use fsm_core::retry::Retry;
use fsm_core::retry_schedule::Planned;
use fsm_core::time::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::policy::{DURATIONS, Fields, policy, total};
use crate::format::{clean, span};
use crate::layout::{Page, document};
use crate::shared::Asked;

/// The number of attempts that are shown of a policy without a limit.
const MOST: usize = 50;

#[derive(Deserialize)]
#[serde(default)]
pub(crate) struct Parameters {
    #[serde(flatten)]
    policy: Fields,
    outage: String,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { policy: Fields::default(), outage: "30m".to_owned() }
    }
}

pub(crate) async fn show(asked: Asked, Query(parameters): Query<Parameters>) -> Response {
    let now = Timestamp::from(std::time::SystemTime::now());
    let outcome = match parameters.policy.policy() {
        Ok(retry) => planned(&retry, duration::parse(&parameters.outage).unwrap_or_default()),
        Err(defect) => html! { p class="notice bad" { (clean(&defect)) } },
    };
    document(&asked, &Page::new("Simulator", "/simulator", now).section("policy", form(&parameters)).section("attempts", outcome))
}

fn form(parameters: &Parameters) -> Markup {
    html! {
        form class="fields sliders" method="get" {
            (parameters.policy.inputs())
            label { "an outage of" input name="outage" value=(clean(&parameters.outage)) size="8" data-steps=(DURATIONS); }
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
        @if outage > Duration::ZERO { p class="quiet" { "Each bar is the wait before an attempt. " span class="error" { "Red" } ": the attempt starts within the outage." } }
        svg class="waits" viewBox={ "0 0 " (attempts.len() * 12) " 80" } preserveAspectRatio="xMinYMax meet" role="img" aria-label="the wait before each attempt" {
            @for (place, planned) in attempts.iter().enumerate() {
                @let height = planned.wait.as_secs_f64() / longest * 76.0;
                rect class=(if planned.at < outage { "bar bad" } else { "bar" }) x=(place * 12) y=(format!("{:.1}", 80.0 - height)) width="10" height=(format!("{height:.1}")) {}
            }
        }
        div class="wide" { table class="narrow" {
            thead { tr { th class="number" { "attempt" } th class="number" { "wait" } th class="number" { "after the first" } } }
            tbody { @for planned in &attempts { tr { td class="number" { (planned.attempt) } td class="number" { (span(planned.wait)) } td class="number" { (span(planned.at)) } } } }
        } }
        @if is_cut { p class="quiet" { "The first " (MOST) " attempts are shown." } }
    }
}
