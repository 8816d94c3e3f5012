//! One instance: its place in the graph, every attempt with its error, the countdown to the next one, and the acts that are possible.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use fsm_core::call::{Attempt, AttemptState};
use fsm_core::instance::Status;
use fsm_core::machine::{Machine, TIMEOUT};
use fsm_core::retry::{Next, RetryAdvice};
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::look::InstanceDetails;
use fsm_runtime::children::Relative;
use fsm_runtime::error::Error;
use fsm_runtime::handle::history::HistoryEvent;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::json;

use super::instances::is_retrying;
use super::machine::linked;
use super::policy::{Fields, policy as in_words};
use super::timeline::timeline;
use crate::access::Action;
use crate::format::{clean, grouped, json as pretty, past, status, time};
use crate::layout::{Page, empty, failed, only, token};
use crate::path::{encoded, query};
use crate::shared::Asked;

/// The maximum number of history entries that are shown at first, the newest ones.
const ENTRIES: usize = 300;

/// The maximum number of planned attempts that are shown.
const PLANNED: usize = 10;

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(crate) struct Parameters {
    /// The act that was just carried out.
    done: String,
    /// `all` shows the whole history.
    history: String,
    /// `hidden` leaves the waits out of the history.
    waits: String,
}

impl Parameters {
    fn path(&self, machine: &str, key: &str) -> String {
        format!(
            "/i/{}/{}{}",
            encoded(machine),
            encoded(key),
            query(&[("done", &self.done), ("history", &self.history), ("waits", &self.waits)])
        )
    }
}

/// The data of the page as JSON.
pub(crate) async fn json(asked: Asked, Path((machine, key)): Path<(String, String)>) -> Response {
    let details = async { asked.admin().await?.details(&machine, &key).await };
    match details.await {
        Ok(details) => {
            let row = &details.seen.row;
            let record = row.record.as_deref().filter(|_| !asked.shared.hides_payloads);
            let call = details.seen.call.as_ref().map(|call| {
                json!({ "id": call.id, "verb": call.verb, "event": call.event, "attempt": call.attempt, "max_attempts": call.max_attempts,
                        "next_at": call.next_at.to_string(), "last_error": call.last_error, "worker": call.worker,
                        "limit": call.limit, "limit_value": call.limit_value, "priority": call.priority, "progress": call.progress })
            });
            Json(json!({
                "machine": row.machine, "key": row.key, "state": row.state, "status": row.status.to_string(), "paused": row.paused,
                "error": row.error, "version": row.version, "created_at": row.created_at.to_string(), "updated_at": row.updated_at.to_string(),
                "record": record.and_then(|record| serde_json::from_slice::<serde_json::Value>(record).ok()),
                "call": call, "parent": details.seen.parent, "children": details.seen.children,
                "history": details.entries.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }))
            .into_response()
        }
        Err(error) => failed(&asked, &error),
    }
}

pub(crate) async fn page(asked: &Asked, admin: &Admin, machine: &str, key: &str, parameters: &Parameters) -> Result<Page, Error> {
    let known = admin.machine(machine)?;
    let details = admin.details(machine, key).await?;
    let workers = admin.workers().await?;
    let now = admin.now();
    let has_worker = workers.iter().any(|worker| worker.lease_until > now);
    Ok(Page::new(key, parameters.path(machine, key), now)
        .section("head", head(asked, &details, has_worker, now, &parameters.done))
        .section("diagram", html! { div class="diagram wide" { (PreEscaped(diagram(&known.machine, &details))) } })
        .section("acts", only(asked, Action::ActOnOne, || acts(asked, &known.machine, &details, now)))
        .section("timeline", history(asked, &details, now, parameters))
        .section("side", side(asked, &details, now)))
}

/// The id of a trace, as a link if the console knows where traces are.
fn trace_link(asked: &Asked, trace_id: &str) -> Markup {
    let short = &trace_id[..trace_id.len().min(8)];
    html! {
        @match &asked.shared.trace_url {
            Some(pattern) => a href=(pattern.replace("{trace_id}", trace_id)) rel="noreferrer" { code title=(trace_id) { (short) } },
            None => code title=(trace_id) { (short) },
        }
    }
}

fn head(asked: &Asked, details: &InstanceDetails, has_worker: bool, now: Timestamp, done: &str) -> Markup {
    let row = &details.seen.row;
    html! {
        @if !done.is_empty() { p class="notice good" { (clean(done)) } }
        p class="facts" {
            a href=(asked.base.machine(&row.machine)) { (row.machine) }
            " " @if let Some(state) = &row.state { code { (state) } } @else { "no state yet" }
            " " (status(row.status, row.paused, is_retrying(&details.seen)))
            @if let Some(call) = &details.seen.call {
                " attempt " (call.attempt_of()) " of " code { (call.verb) } " on " code { (call.event) }
                @if !call.priority.is_normal() { ", " (call.priority) " priority" }
                @if call.state == AttemptState::Executing { ", running" }
                @else if call.next_at > now { ", next " span class="countdown" { (time(call.next_at, now)) } }
                @else if let Some(limit) = call.limit_of() { ", waits for the limit " (limit) }
                @else if has_worker { ", due" } @else { ", due; no worker is alive" }
                @if let Some(progress) = &call.progress { " · progress " code { (progress.value) } " " (time(progress.at, now)) }
            }
            @if let Some(trace) = &details.trace { " · trace " (trace_link(asked, trace.trace_id())) }
            " · changed " (past(row.updated_at, now)) " · created " (past(row.created_at, now))
            " · " a href=(asked.base.to(&format!("/i/{}/{}/json", encoded(&row.machine), encoded(&row.key)))) { "JSON" }
        }
        @if let Some(error) = row.error.as_deref().filter(|_| row.status == Status::Error) { pre class="notice bad" { (clean(error)) } }
        @else if let Some(error) = details.seen.call.as_ref().and_then(|call| call.last_error.as_deref()) { pre class="notice warn" { (clean(error)) } }
    }
}

/// The diagram: lines that were taken are solid, the present state stands out, and states that were not reached are dim.
fn diagram(machine: &Machine, details: &InstanceDetails) -> String {
    let taken: BTreeSet<(String, String)> = details
        .entries
        .iter()
        .filter_map(|entry| match &entry.event {
            HistoryEvent::Transition { from, to } => Some((from.clone().unwrap_or_default(), to.clone())),
            _ => None,
        })
        .collect();
    let row = &details.seen.row;
    let target = details.seen.call.as_ref().map(|call| call.verb.as_str());
    let class = |state: &str| {
        let mut class = String::from("state");
        if row.state.as_deref() == Some(state) {
            class.push_str(if row.status == Status::Error { " here failed" } else { " here" });
        } else if target == Some(state) {
            class.push_str(if is_retrying(&details.seen) { " target retrying" } else { " target" });
        } else if taken.iter().any(|(_, to)| to == state) {
            class.push_str(" visited");
        } else {
            class.push_str(" ahead");
        }
        class
    };
    let states = linked(&fsm_core::diagram::svg::svg(machine), |state| (class(state), String::new()));
    states.lines().map(|line| edge_of(line, &taken) + "\n").collect()
}

/// One line of the drawing. The class of an edge shows whether it was taken.
fn edge_of(line: &str, taken: &BTreeSet<(String, String)>) -> String {
    const START: &str = "<g class=\"edge\" data-from=\"";
    let ends = line
        .strip_prefix(START)
        .and_then(|rest| rest.split_once("\" data-to=\""))
        .and_then(|(from, rest)| Some((from, rest.split_once('"')?.0)));
    match ends {
        Some((from, to)) => {
            let class = if taken.contains(&(from.to_owned(), to.to_owned())) { "edge taken" } else { "edge ahead" };
            line.replacen("class=\"edge\"", &format!("class=\"{class}\""), 1)
        }
        None => line.to_owned(),
    }
}

/// The acts that apply now. The others are shown with the reason why they do not.
fn acts(asked: &Asked, machine: &Machine, details: &InstanceDetails, now: Timestamp) -> Markup {
    let row = &details.seen.row;
    let is_over = row.status.is_ended();
    let waits = details.seen.call.as_ref().is_some_and(|call| call.state == AttemptState::Scheduled && call.next_at > now);
    let why_not = |act: &str| -> Option<String> {
        let over = || format!("it is {}", row.status);
        match act {
            "cancel" | "pause" | "resume" | "skip" | "retry" if is_over => Some(over()),
            "pause" if row.paused => Some("it is paused".to_owned()),
            "resume" if !row.paused => Some("it is not paused".to_owned()),
            "retry" if row.status != Status::Error && !waits => Some("no call failed or waits for a retry".to_owned()),
            "skip" if row.status != Status::Error && !row.is_open => Some("no call is open or in error".to_owned()),
            _ => None,
        }
    };
    let fits: Vec<&str> = machine.accepts(row.state.as_deref()).filter(|event| *event != TIMEOUT).collect();
    let action = asked.base.instance(&row.machine, &row.key);
    html! {
        h2 { "Act" }
        form class="fields" method="post" action=(action) {
            (token(asked))
            label { "reason" input name="reason" maxlength="1000" placeholder="for the history" size="40"; }
            @for (act, word) in [("retry", "retry now"), ("pause", "pause"), ("resume", "resume"), ("skip", "skip the call"), ("cancel", "cancel")] {
                @let why = why_not(act);
                button name="action" value=(act) disabled[why.is_some()] title=[why] data-key=[(act == "retry").then_some("r")] { (word) }
            }
        }
        @if !is_over {
            form class="fields" method="post" action=(action) {
                (token(asked))
                input type="hidden" name="action" value="send";
                label { "event" select name="event" data-key="s" {
                    @for event in &fits { option { (event) } }
                    @let others: BTreeSet<&str> = machine.edges.iter().map(|edge| edge.event.as_str()).filter(|event| *event != TIMEOUT && !fits.contains(event)).collect();
                    @for event in others { option disabled { (event) " – not accepted in this state" } }
                } }
                label { "payload, JSON" textarea name="payload" rows="1" cols="40" { "null" } }
                button disabled[fits.is_empty()] { "send" }
            }
        }
        @if let Some(attempt) = details.attempts.last().filter(|_| row.is_open && !is_over) {
            @let is_running = attempt.state == AttemptState::Executing;
            details { summary { "change the retry policy" }
                @if let Some(policy) = &attempt.retry_state.policy { p class="quiet" { "Now: " (in_words(policy)) ". Retries that were used still count." } }
                @else { p class="quiet" { "Now: no retries." } }
                form class="fields" method="post" action=(action) {
                    (token(asked))
                    input type="hidden" name="action" value="policy";
                    (attempt.retry_state.policy.as_ref().map(Fields::of).unwrap_or_default().inputs())
                    label { "reason" input name="reason" maxlength="1000" placeholder="for the history" size="30"; }
                    button disabled[is_running] title=[is_running.then_some("the attempt is running")] { "change" }
                }
            }
        }
        details { summary { "as a command" }
            pre { "fsm retry " (shell(&row.machine)) " " (shell(&row.key)) " --reason '…'\nfsm show " (shell(&row.machine)) " " (shell(&row.key)) }
        }
    }
}

/// The text quoted for a shell.
fn shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '+');
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", clean(word).replace('\'', "'\\''")) }
}

/// The newest entries of the history, or all of them if the URL says so.
fn history(asked: &Asked, details: &InstanceDetails, now: Timestamp, parameters: &Parameters) -> Markup {
    let row = &details.seen.row;
    let hidden = if parameters.history == "all" { 0 } else { details.entries.len().saturating_sub(ENTRIES) };
    let link = |parameters: Parameters| asked.base.to(&Parameters { done: String::new(), ..parameters }.path(&row.machine, &row.key));
    let older = (hidden > 0).then(|| (hidden, link(Parameters { history: "all".to_owned(), ..parameters.clone() })));
    let has_waits = parameters.waits != "hidden";
    let waits = if has_waits { "hidden" } else { "" };
    let waits = link(Parameters { waits: waits.to_owned(), ..parameters.clone() });
    timeline(&details.entries[hidden..], older, (has_waits, waits), now)
}

/// The attempts that would follow the open one, by the policy of its call, without jitter.
fn plan(open: &Attempt, now: Timestamp) -> Markup {
    let (mut number, mut at, mut state) = (open.number, open.scheduled_at, open.retry_state.clone());
    let mut planned = Vec::new();
    let gives_up = loop {
        if planned.len() == PLANNED {
            break false;
        }
        match state.after(RetryAdvice::Default, at, 0.0) {
            Next::Again { wait, retry_state } => (number, at, state) = (number + 1, at + wait, *retry_state),
            Next::Exhausted(_) => break true,
        }
        planned.push((number, at));
    };
    html! {
        ol class="plan" { @for (number, at) in &planned { li value=(number) { (time(*at, now)) } } }
        @if gives_up { p class="quiet" { @if planned.is_empty() { "There is no other attempt: it gives up." } @else { "Then it gives up." } } }
        @else { p class="quiet" { "and so on" } }
    }
}

fn side(asked: &Asked, details: &InstanceDetails, now: Timestamp) -> Markup {
    let row = &details.seen.row;
    let live = details.attempts.last().filter(|_| row.is_open);
    html! {
        @if let Some((attempt, policy)) = live.and_then(|live| Some((live, live.retry_state.policy.as_ref()?))) {
            h2 { "If the next attempts fail" }
            @if let Some(delay) = &policy.delay { p class="quiet" { "The wait is what " code { (delay) } " says." } }
            @else { (plan(attempt, now)) }
        }
        @if !details.seen.fields.is_empty() && !asked.shared.hides_payloads {
            h2 { "Search fields" }
            ul {
                @for field in &details.seen.fields {
                    @let parameter = format!("field.{}", field.name);
                    li { (field.name) " " a href=(asked.base.instances(&[("machine", &row.machine), (&parameter, &field.value)])) { code { (clean(&field.value)) } } }
                }
            }
        }
        (family(asked, details))
        h2 { "Record" }
        @match row.record.as_deref() {
            Some(_) if asked.shared.hides_payloads => p class="quiet" { "hidden" }
            Some(record) => pre class="json" { (pretty(record)) }
            None => (empty("The machine keeps no record, or nothing was stored yet."))
        }
        @if !details.inbox.is_empty() {
            h2 { "Waiting events" }
            ol { @for event in &details.inbox { li { code { (event.event) } " since " (time(event.since, now)) } } }
        }
        @if let Some(full) = &details.full_inbox {
            p class="notice warn" {
                "The inbox is full. " (grouped(full.events)) " more wait in the outbox since " (time(full.since, now)) ", next delivery " (time(full.next_at, now))
            }
        }
        @if !details.timers.is_empty() {
            h2 { "Timers" }
            ul {
                @for timer in &details.timers {
                    li { code { (timer.event) } @if let Some(state) = &timer.state { " of " code { (state) } } ", due " (time(timer.due_at, now)) @if timer.held { ", after the transition under way" } }
                }
            }
        }
    }
}

/// The parent, the numbers of children, and the oldest children.
fn family(asked: &Asked, details: &InstanceDetails) -> Markup {
    let link = |relative: &Relative| html! { (relative.machine) " " a href=(asked.base_of(&relative.key).instance(&relative.machine, &relative.key)) { (clean(&relative.key)) } };
    let state = |state: Option<&str>| html! { @if let Some(state) = state { code { (state) } } @else { "no state yet" } };
    let children = &details.seen.children;
    html! {
        @if let Some(parent) = &details.seen.parent {
            h2 { "Parent" }
            p { (link(parent)) " " (state(parent.state.as_deref())) " " (status(parent.status, false, false)) }
        }
        @if !children.is_empty() {
            h2 { "Children" }
            ul { @for count in children { li { (grouped(count.count)) " of " (count.machine) " in " (state(count.state.as_deref())) " " (status(count.status, false, false)) } } }
            details { summary { @if children.iter().map(|count| count.count).sum::<u64>() > details.children.len() as u64 { "the first " (details.children.len()) } @else { "all of them" } }
                ul { @for child in &details.children { li { (link(child)) " " (state(child.state.as_deref())) " " (status(child.status, false, false)) } } }
            }
        }
    }
}
