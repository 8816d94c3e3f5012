//! One machine: the diagram with the instances in each state, and its verbs with their policies.

use std::time::Duration;

use fsm_core::call::AttemptState;
use fsm_core::duration;
use fsm_core::instance::Status;
use fsm_core::machine::Verb;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use fsm_store::overview::{Retrying, Times};
use maud::{Markup, PreEscaped, html};

use super::overview::{MOST, percentile};
use super::policy::{policy, total};
use crate::format::{grouped, span, time};
use crate::layout::Page;
use crate::path::encoded;
use crate::shared::Asked;

/// The maximum number of instances that are counted as retrying, and of scheduled attempts that are searched for them.
const RETRYING: u32 = 1_000;
const LOOK_AT: u32 = 2_000;
/// The number of newest attempts of all machines, among which those of a verb are counted.
const SAMPLE: u32 = 5_000;

/// The numbers of instances in one state, up to a limit.
#[derive(Default)]
struct InState {
    /// Neither in error nor after a failed attempt.
    running: u64,
    retrying: u64,
    in_error: u64,
    ended: u64,
    is_more: bool,
    is_more_retrying: bool,
}

impl InState {
    fn text(&self) -> Option<String> {
        let parts = [
            (self.running, self.is_more, "running"),
            (self.retrying, self.is_more_retrying, "retrying"),
            (self.in_error, self.is_more, "in error"),
            (self.ended, self.is_more, "ended"),
        ];
        let shown = parts.iter().filter(|(count, ..)| *count > 0);
        let parts: Vec<String> =
            shown.map(|(count, is_more, word)| format!("{}{} {word}", grouped(*count), if *is_more { "+" } else { "" })).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

pub(crate) async fn page(asked: &Asked, admin: &Admin, name: &str) -> Result<Page, Error> {
    let now = admin.now();
    let known = admin.machine(name)?;
    let (counts, more) = admin.newest_counts(name, MOST).await?;
    let newest = admin.newest(SAMPLE).await?;
    let retrying = admin.retrying(name, RETRYING, LOOK_AT).await?;
    // Instances that have no state yet are counted under an empty name, which no state has.
    let in_state = |state: &str| {
        let mut all = InState::default();
        for (status, _, count) in counts.iter().filter(|(_, of, _)| of.as_deref().unwrap_or_default() == state) {
            match status {
                Status::Running => all.running += count,
                Status::Error => all.in_error += count,
                _ => all.ended += count,
            }
            all.is_more |= more.contains(status);
        }
        let is_here = |one: &&Retrying| one.failing.state.as_deref().unwrap_or_default() == state;
        all.retrying = retrying.iter().filter(is_here).count() as u64;
        all.running = all.running.saturating_sub(all.retrying);
        all.is_more_retrying = retrying.len() == RETRYING as usize;
        all
    };
    let machine = &known.machine;
    let diagram = fsm_core::diagram::svg::svg_noted(machine, |state| in_state(state).text());
    let linked = linked(&diagram, |state| {
        let counts = in_state(state);
        let class = if counts.in_error > 0 {
            "state has-errors"
        } else if counts.retrying > 0 {
            "state has-retries"
        } else if counts.running > 0 {
            "state has-running"
        } else {
            "state"
        };
        (class.to_owned(), asked.base.instances(&[("machine", name), ("state", state)]))
    });
    let docs = html! { @if !machine.docs.is_empty() { p { (machine.docs) } } p class="quiet" { "last started " (time(known.last_seen_at, now)) ", " (known.definitions) @if known.definitions == 1 { " definition" } @else { " definitions" } " so far · " a href=(asked.base.instances(&[("machine", name)])) { "all instances" } } };
    Ok(Page::new(name, format!("/m/{}", encoded(name)), now)
        .section("about", docs)
        .section("diagram", html! { div class="diagram wide" { (PreEscaped(linked)) } })
        .section("states", states(asked, name, &known.states, in_state))
        .section("verbs", verbs(name, &machine.verbs, &newest)))
}

/// The diagram with each state as a link with its class. Each state is one line of the drawing.
pub(super) fn linked(svg: &str, of: impl Fn(&str) -> (String, String)) -> String {
    const START: &str = "<g class=\"state\" data-state=\"";
    let mut linked = String::with_capacity(svg.len() * 2);
    for line in svg.lines() {
        let state = line.strip_prefix(START).and_then(|rest| rest.split_once('"'));
        match state {
            Some((state, rest)) => {
                let (class, href) = of(&unescaped(state));
                let href = html! { (href) }.into_string();
                let open = format!("<g class=\"{class}\" data-state=\"{state}\"{rest}");
                if href.is_empty() { linked.push_str(&open) } else { linked.push_str(&format!("<a href=\"{href}\">{open}</a>")) }
            }
            None => linked.push_str(line),
        }
        linked.push('\n');
    }
    linked
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
}

fn states(asked: &Asked, machine: &str, states: &[String], in_state: impl Fn(&str) -> InState) -> Markup {
    let number = |count: u64, is_more: bool| match count {
        0 => html! { span class="quiet" { "0" } },
        _ => html! { (grouped(count)) @if is_more { "+" } },
    };
    html! {
        h2 { "States" }
        div class="wide" { table {
            thead { tr { th { "state" } th class="number" { "running" } th class="number" { "retrying" } th class="number" { "in error" } th class="number" { "ended" } } }
            tbody {
                @let stateless = in_state("");
                @if stateless.text().is_some() {
                    tr {
                        td { "no state yet" }
                        td class="number" { (number(stateless.running, stateless.is_more)) }
                        td class="number" { (number(stateless.retrying, stateless.is_more_retrying)) }
                        td class="number error" { a href=(asked.base.instances(&[("machine", machine), ("status", "error")])) data-row { (number(stateless.in_error, stateless.is_more)) } }
                        td class="number" { (number(stateless.ended, stateless.is_more)) }
                    }
                }
                @for state in states {
                    @let counts = in_state(state);
                    tr {
                        td { a href=(asked.base.instances(&[("machine", machine), ("state", state)])) data-row { code { (state) } } }
                        td class="number" { (number(counts.running, counts.is_more)) }
                        td class={ "number" @if counts.retrying > 0 { " warn" } } { (number(counts.retrying, counts.is_more_retrying)) }
                        td class={ "number" @if counts.in_error > 0 { " error" } } { (number(counts.in_error, counts.is_more)) }
                        td class="number" { (number(counts.ended, counts.is_more)) }
                    }
                }
            }
        } }
    }
}

/// The outcomes of the newest attempts of one verb.
#[derive(Default)]
struct Ended {
    succeeded: usize,
    failed: usize,
    lost: usize,
    took: Vec<Duration>,
}

impl Ended {
    /// Counts the attempts of one verb among the newest attempts of all machines.
    fn of(newest: &[Times], machine: &str, verb: &str) -> Ended {
        let mut ended = Ended::default();
        for times in newest.iter().filter(|times| times.machine == machine && times.verb == verb) {
            match times.state {
                AttemptState::Success => ended.succeeded += 1,
                AttemptState::Error => ended.failed += 1,
                AttemptState::Lost => ended.lost += 1,
                _ => continue,
            }
            // A lost attempt ends with its worker's lease, so its duration does not count.
            if let (Some(started), Some(finished), false) = (times.started_at, times.finished_at, times.state == AttemptState::Lost) {
                ended.took.push(finished.since(started));
            }
        }
        ended.took.sort_unstable();
        ended
    }

    fn percentile(&self, share: f64) -> String {
        if self.took.is_empty() { "–".to_owned() } else { span(percentile(&self.took, share)) }
    }
}

fn verbs(machine: &str, verbs: &[Verb], newest: &[Times]) -> Markup {
    let count = |count: usize| html! { @if count == 0 { span class="quiet" { "0" } } @else { (grouped(count as u64)) } };
    html! {
        h2 { "Verbs" span class="quiet" { " with their outcomes among the newest " (grouped(u64::from(SAMPLE))) " attempts of all machines" } }
        div class="wide" { table {
            thead { tr {
                th { "verb" } th { "event" } th { "retry policy" } th class="number" { "gives up after" } th class="number" { "timeout" }
                th class="number" { "succeeded" } th class="number" { "failed" } th class="number" { "lost" } th class="number" { "p50" } th class="number" { "p95" }
            } }
            tbody {
                @for verb in verbs {
                    @let ended = Ended::of(newest, machine, &verb.name);
                    tr {
                        td { code { (verb.name) } }
                        td { code { (verb.event) } }
                        td { @if let Some(retry) = &verb.retry { (policy(retry)) } @else { "none" } }
                        td class="number" { @if let Some(retry) = &verb.retry { (total(retry)) } @else { "–" } }
                        td class="number" { (verb.timeout.map_or("–".to_owned(), duration::display)) }
                        td class="number" { (count(ended.succeeded)) }
                        td class={ "number" @if ended.failed > 0 { " error" } } { (count(ended.failed)) }
                        td class={ "number" @if ended.lost > 0 { " error" } } { (count(ended.lost)) }
                        td class="number" { (ended.percentile(0.5)) }
                        td class="number" { (ended.percentile(0.95)) }
                    }
                }
            }
        } }
    }
}
