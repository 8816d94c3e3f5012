//! The timeline of an instance: its events, attempts, transitions and operators' acts, with the waits between them.

use std::time::Duration;

use fsm_core::call::AttemptState;
use fsm_core::time::Timestamp;
use fsm_runtime::handle::history::{HistoryEntry, HistoryEvent};
use maud::{Markup, html};

use crate::format::{clean, first_line, past, span, time};
use crate::layout::empty;

/// A wait of at least this long is a line of the timeline.
const GAP: Duration = Duration::from_secs(1);
/// An error with more characters than this is folded.
const LONG_ERROR: usize = 160;

/// The list of entries. `older` is the link to the entries before them, and `waits` the one to the list with or without the waits.
pub(super) fn timeline(
    shown: &[HistoryEntry],
    older: Option<(usize, String)>,
    (has_waits, waits): (bool, String),
    now: Timestamp,
) -> Markup {
    html! {
        h2 { "Timeline" }
        @if !shown.is_empty() { p class="quiet" { a href=(waits) { @if has_waits { "hide the waits" } @else { "show the waits" } } } }
        @if let Some((hidden, link)) = older { p { a href=(link) { "show " (hidden) " older entries" } } }
        @if shown.is_empty() { (empty("Nothing has happened yet.")) }
        ol class="timeline" { (lines(shown, has_waits, now)) }
    }
}

fn lines(shown: &[HistoryEntry], has_waits: bool, now: Timestamp) -> Markup {
    let mut last_error = None;
    html! {
        @for (place, entry) in shown.iter().enumerate() {
            @let before = place.checked_sub(1).map(|before| &shown[before]);
            @if let Some(gap) = before.map(|before| entry.at.since(before.at)).filter(|gap| has_waits && *gap >= GAP) {
                @let is_wait = before.is_some_and(|before| matches!(before.event, HistoryEvent::Scheduled { .. }));
                li class="gap" { (span(gap)) @if is_wait { " until the next attempt" } }
            }
            @let has_run = shown.get(place + 1).is_some_and(|next| is_its_attempt(entry, next));
            @let is_wait = !has_waits && place + 1 < shown.len() && matches!(entry.event, HistoryEvent::Scheduled { .. });
            @if !has_run && !is_wait { (line(entry, &mut last_error, now)) }
        }
    }
}

/// Returns true if `next` is the attempt that `entry` scheduled. The line of the wait then says the same as `entry`.
fn is_its_attempt(entry: &HistoryEntry, next: &HistoryEntry) -> bool {
    match (&entry.event, &next.event) {
        (HistoryEvent::Scheduled { number, verb, .. }, HistoryEvent::Attempt { number: ran, verb: of, .. }) => (number, verb) == (ran, of),
        _ => false,
    }
}

fn line<'e>(entry: &'e HistoryEntry, last_error: &mut Option<&'e str>, now: Timestamp) -> Markup {
    let (class, text) = match &entry.event {
        HistoryEvent::Event { event, verb } => ("event", html! { code { (event) } " calls " code { (verb) } }),
        HistoryEvent::Attempt { number, verb, state, took, error } => {
            let class = match state {
                AttemptState::Success => "good",
                AttemptState::Error | AttemptState::Lost => "bad",
                _ => "attempt",
            };
            let is_same = error.as_deref().is_some_and(|error| last_error.replace(error) == Some(error));
            let text = html! {
                "attempt " (number) " of " code { (verb) } ": " (state)
                @if let Some(took) = took { " after " (span(*took)) }
                @if is_same { span class="quiet" { ", the same error" } }
                @else if let Some(error) = error { (failure(error)) }
            };
            (class, text)
        }
        HistoryEvent::Scheduled { number, verb, at, wait } => {
            let text = html! {
                "attempt " (number) " of " code { (verb) }
                @if wait.is_zero() { " is due at once" } @else { " after a wait of " (span(*wait)) ", " (time(*at, now)) }
            };
            ("wait", text)
        }
        HistoryEvent::Exhausted { verb, attempts } => {
            ("bad", html! { code { (verb) } " is exhausted after " (attempts) @if *attempts == 1 { " attempt" } @else { " attempts" } })
        }
        HistoryEvent::Transition { from: Some(from), to } => ("transition", html! { code { (from) } " → " code { (to) } }),
        HistoryEvent::Transition { from: None, to } => ("transition", html! { "begins in " code { (to) } }),
        HistoryEvent::Stayed { state } => ("transition", html! { "stays in " code { (state) } }),
        HistoryEvent::Note { kind, detail, actor } => {
            let text = html! { (kind) @if let Some(actor) = actor { " by " (clean(actor)) } @if let Some(detail) = detail { ": " (clean(detail)) } };
            ("note", text)
        }
    };
    html! { li class=(class) { span class="when" { (past(entry.at, now)) } div { (text) } } }
}

fn failure(error: &str) -> Markup {
    let is_long = error.chars().count() > LONG_ERROR || error.lines().nth(1).is_some();
    html! {
        @if is_long { details { summary { (first_line(error, LONG_ERROR)) } pre { (clean(error)) } } }
        @else { pre { (clean(error)) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_can_be_hidden_but_not_the_one_that_goes_on() {
        let attempt = |number, at: i64| HistoryEntry {
            at: Timestamp::from_micros(at * 1_000_000),
            call: None,
            event: HistoryEvent::Attempt {
                number,
                verb: "paid".to_owned(),
                state: AttemptState::Error,
                took: None,
                error: Some("declined".to_owned()),
            },
        };
        let scheduled = |number, at: i64| {
            let at = Timestamp::from_micros(at * 1_000_000);
            let wait = Duration::from_secs(60);
            HistoryEntry { at, call: None, event: HistoryEvent::Scheduled { number, verb: "paid".to_owned(), at: at + wait, wait } }
        };
        let entries = [attempt(1, 0), scheduled(2, 0), attempt(2, 60), scheduled(3, 60)];
        let shown = |has_waits| timeline(&entries, None, (has_waits, String::new()), Timestamp::from_micros(61_000_000)).into_string();
        assert!(shown(true).contains("1m until the next attempt") && shown(true).contains("hide the waits"));
        assert!(!shown(false).contains("class=\"gap\"") && shown(false).contains("show the waits"));
        assert_eq!(shown(false).matches("after a wait of 1m").count(), 1, "the attempt that is due next is always shown");
    }
}
