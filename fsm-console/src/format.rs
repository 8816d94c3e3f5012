//! Times, durations, statuses and texts as a page shows them.

use std::time::Duration;

use fsm_core::duration;
use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use maud::{Markup, html};

/// Clocks that differ by less are not worth a word.
const SKEW: Duration = Duration::from_secs(1);

/// A counted number; with `+` if the count stopped at its limit.
pub(crate) fn counted(count: u64, most: u64) -> String {
    let text = grouped(count);
    if count >= most { format!("{text}+") } else { text }
}

/// The number with spaces between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A duration with its largest unit and one more: `3m 20s`, `250ms`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let rounded = match seconds {
        0 if span.subsec_millis() == 0 => return "0s".to_owned(),
        0 => Duration::from_millis(u64::from(span.subsec_millis())),
        1..60 => Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / 100 * 100),
        60..3_600 => Duration::from_secs(seconds),
        3_600..86_400 => Duration::from_secs(seconds / 60 * 60),
        _ => Duration::from_secs(seconds / 3_600 * 3_600),
    };
    duration::display(rounded)
}

/// A duration in whole seconds or coarser.
pub(crate) fn age(length: Duration) -> String {
    span(Duration::from_secs(length.as_secs()))
}

/// A past or future time, relative to `now`, with the exact one in its title. The script keeps it up to date.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> Markup {
    let text = match (at.since(now), now.since(at)) {
        (left, _) if !left.is_zero() => format!("in {}", age(left.max(Duration::from_secs(1)))),
        (_, past) => since(past),
    };
    html! { time datetime=(at) title=(at) data-at=(at.as_micros()) { (text) } }
}

/// A time at which something happened. If it is later than `now`, the clocks of two machines differ, and the text says by how much.
pub(crate) fn past(at: Timestamp, now: Timestamp) -> Markup {
    let ahead = at.since(now);
    if ahead < SKEW {
        return html! { time datetime=(at) title=(at) data-past=(at.as_micros()) { (since(now.since(at))) } };
    }
    html! { time datetime=(at) title={ (at) ": later than the time of the database, so two clocks differ" } data-past=(at.as_micros()) { "clock " (age(ahead)) " ahead" } }
}

fn since(past: Duration) -> String {
    if past.as_secs() == 0 { "just now".to_owned() } else { format!("{} ago", age(past)) }
}

/// The status with its icon and its word, so that it is never shown by a colour alone.
pub(crate) fn status(status: Status, is_paused: bool, is_retrying: bool) -> Markup {
    let (class, icon, word) = match (status, is_paused, is_retrying) {
        (Status::Error, ..) => ("error", "✕", "error"),
        (Status::Completed, ..) => ("done", "✓", "completed"),
        (Status::Cancelled, ..) => ("cancelled", "⊘", "cancelled"),
        (Status::Running, true, _) => ("paused", "‖", "paused"),
        (Status::Running, false, true) => ("retrying", "↻", "retrying"),
        (Status::Running, false, false) => ("running", "●", "running"),
    };
    html! { span class={ "status " (class) } { span aria-hidden="true" { (icon) } " " (word) } }
}

/// True if the character could move the text around it or change its direction, on a page or in a terminal.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of a user or a program. Control characters could move the text around them, so they are shown as replacement characters.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// The first line of a text, cut to `most` characters.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let line = clean(text.lines().next().unwrap_or_default());
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// JSON with each member on a line of its own. Other text is shown unchanged.
pub(crate) fn json(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let pretty = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|value| serde_json::to_string_pretty(&value).ok());
    clean(&pretty.unwrap_or_else(|| text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_spans_and_texts_read_well() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((counted(9, 10), counted(10, 10)), ("9".to_owned(), "10+".to_owned()));
        let spans = [(3, "3ms"), (2_460, "2s400ms"), (200_000, "3m20s"), (90_000_000, "1d1h")];
        for (ms, text) in spans {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\n"), "a\u{fffd}[31mb\u{fffd}c\n");
        assert_eq!((first_line("ab\ncd", 9), first_line("abcd", 2)), ("ab".to_owned(), "ab…".to_owned()));
    }

    #[test]
    fn a_past_time_that_is_ahead_shows_that_clocks_differ() {
        let now = Timestamp::from_micros(10_000_000);
        let text = |at| past(at, now).into_string();
        assert!(text(now + Duration::from_millis(900)).contains(">just now<"));
        assert!(text(now + Duration::from_secs(90)).contains(">clock 1m30s ahead<"));
        assert!(text(Timestamp::from_micros(0)).contains(">10s ago<"));
    }

    #[test]
    fn a_time_is_never_negative() {
        let now = Timestamp::from_micros(10_000_000);
        assert!(time(now, now).into_string().contains(">just now<"));
        assert!(time(now, now + Duration::from_millis(2_900)).into_string().contains(">2s ago<"));
        assert!(time(now + Duration::from_millis(200), now).into_string().contains(">in 1s<"));
        assert!(time(now + Duration::from_secs(5), now).into_string().contains(">in 5s<"));
    }
}
