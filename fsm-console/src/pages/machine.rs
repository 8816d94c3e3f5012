//! One machine: the diagram with the instances in each state, and its verbs with their policies.

use axum::extract::Path;
use axum::response::Response;
use fsm_core::duration;
use fsm_core::instance::Status;
use fsm_core::machine::Verb;
use fsm_core::retry::Retry;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use maud::{Markup, PreEscaped, html};

use super::overview::MOST;
use crate::format::{grouped, span, time};
use crate::layout::Page;
use crate::path::encoded;
use crate::shared::Asked;

pub(crate) async fn show(asked: Asked, Path(machine): Path<String>) -> Response {
    super::shown(&asked, &format!("/m/{}", encoded(&machine))).await
}

/// The instances in one state, up to a limit.
#[derive(Default)]
struct InState {
    running: u64,
    in_error: u64,
    ended: u64,
    is_more: bool,
}

impl InState {
    fn text(&self) -> Option<String> {
        let more = if self.is_more { "+" } else { "" };
        let parts = [(self.running, "running"), (self.in_error, "in error"), (self.ended, "ended")];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{}{more} {word}", grouped(*count))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

pub(crate) async fn page(asked: &Asked, admin: &Admin, name: &str) -> Result<Page, Error> {
    let now = admin.now();
    let known = admin.machine(name)?;
    let (counts, more) = admin.newest_counts(name, MOST).await?;
    // Those that have no state yet are counted under an empty name, which no state has.
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
        all
    };
    let machine = &known.machine;
    let diagram = fsm_core::diagram::svg::svg_noted(machine, |state| in_state(state).text());
    let linked = linked(&diagram, |state| {
        let counts = in_state(state);
        let class = if counts.in_error > 0 {
            "state has-errors"
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
        .section("verbs", verbs(&machine.verbs)))
}

/// The diagram with each state as a link, and with its class. Each state of the drawing is one line.
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
    let number = |count: u64, is_more: bool| format!("{}{}", grouped(count), if is_more && count > 0 { "+" } else { "" });
    html! {
        h2 { "States" }
        div class="wide" { table {
            thead { tr { th { "state" } th class="number" { "running" } th class="number" { "in error" } th class="number" { "ended" } } }
            tbody {
                @let stateless = in_state("");
                @if stateless.text().is_some() {
                    tr {
                        td { "no state yet" }
                        td class="number" { (number(stateless.running, stateless.is_more)) }
                        td class="number error" { a href=(asked.base.instances(&[("machine", machine), ("status", "error")])) data-row { (number(stateless.in_error, stateless.is_more)) } }
                        td class="number" { (number(stateless.ended, stateless.is_more)) }
                    }
                }
                @for state in states {
                    @let counts = in_state(state);
                    tr {
                        td { a href=(asked.base.instances(&[("machine", machine), ("state", state)])) data-row { code { (state) } } }
                        td class="number" { (number(counts.running, counts.is_more)) }
                        td class={ "number" @if counts.in_error > 0 { " error" } } { (number(counts.in_error, counts.is_more)) }
                        td class="number" { (number(counts.ended, counts.is_more)) }
                    }
                }
            }
        } }
    }
}

fn verbs(verbs: &[Verb]) -> Markup {
    html! {
        h2 { "Verbs" }
        div class="wide" { table {
            thead { tr { th { "verb" } th { "event" } th { "retry policy" } th class="number" { "gives up after" } th class="number" { "timeout" } } }
            tbody {
                @for verb in verbs {
                    tr {
                        td { code { (verb.name) } }
                        td { code { (verb.event) } }
                        td { @if let Some(retry) = &verb.retry { (policy(retry)) } @else { "none" } }
                        td class="number" { @if let Some(retry) = &verb.retry { (total(retry)) } @else { "–" } }
                        td class="number" { (verb.timeout.map_or("–".to_owned(), duration::display)) }
                    }
                }
            }
        } }
    }
}

/// The policy in words.
pub(super) fn policy(retry: &Retry) -> String {
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
