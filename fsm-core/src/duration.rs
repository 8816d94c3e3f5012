//! Durations as text, such as `500ms`, `5s`, `1h30m` or `2d`. The macros parse them at compile time, and the runtime at run time.

use std::fmt;
use std::time::Duration;

/// The units from large to small, in microseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];

/// The error of [`parse`]. `Display` says what was rejected and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotADuration {
    text: String,
    why: String,
}

impl NotADuration {
    /// Advice for the user: the accepted form. It is printed as a line of its own, after the error.
    pub const HELP: &'static str =
        "write whole numbers with d, h, m, s or ms, from large to small and without spaces, like `250ms`, `5s` or `1h30m`";
}

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a duration: {}", self.text.escape_debug(), self.why)
    }
}

impl std::error::Error for NotADuration {}

/// Parses a duration: one or more of `<number><unit>`, with the units `d`, `h`, `m`, `s` and `ms` from large to small and each at most
/// once.
///
/// The duration is above zero, and in microseconds it fits into an `i64`. Any other text is an error.
///
/// A number may be larger than the next unit: `1m90s` is 150 s.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let reject = |why: String| NotADuration { text: text.to_owned(), why };
    let mut total_us: u64 = 0;
    let mut units_left = &UNITS[..];
    let mut rest = text;
    if rest.is_empty() {
        return Err(reject("it is empty".into()));
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let letters = rest[digits..].len() - rest[digits..].trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        if number.is_empty() {
            return Err(reject(format!("a number is expected at `{}`", rest.escape_debug())));
        }
        if unit.is_empty() {
            return Err(reject(format!("`{number}` has no unit")));
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(reject(format!("`{unit}` is not a unit")));
        }
        let Some(place) = units_left.iter().position(|(name, _)| *name == unit) else {
            return Err(reject(format!("`{unit}` comes too late: units go from large to small, each once")));
        };
        let us = number.parse::<u64>().ok().and_then(|n| n.checked_mul(units_left[place].1));
        total_us = us
            .and_then(|us| total_us.checked_add(us))
            .filter(|us| i64::try_from(*us).is_ok())
            .ok_or_else(|| reject("it is longer than can be counted in microseconds".into()))?;
        units_left = &units_left[place + 1..];
        rest = &rest[digits + letters..];
    }
    if total_us == 0 {
        return Err(reject("it is zero".into()));
    }
    Ok(Duration::from_micros(total_us))
}

/// Formats a duration for people: `1h30m`, `250ms`. [`parse`] reads the text back if the duration is a whole number of milliseconds.
/// Smaller parts are left out; a duration below one millisecond is shown in `us`, which `parse` does not accept.
pub fn display(duration: Duration) -> String {
    let mut us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, size) in UNITS {
        if us >= size {
            text.push_str(&format!("{}{unit}", us / size));
            us %= size;
        }
    }
    if us > 0 && text.is_empty() {
        text = format!("{us}us");
    }
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_are_read() {
        let cases: [(&str, u64); 9] = [
            ("7s", 7_000),
            ("9h", 32_400_000),
            ("1d", 86_400_000),
            ("1m90s", 150_000),
            ("1h2m3s", 3_723_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("0s1ms", 1),
            ("365d", 31_536_000_000),
        ];
        for (text, ms) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn durations_that_are_refused() {
        let cases =
            ["", "1x", "1d1d", "1s5d", "-1s", "5 s", "2mins", "0s", "5s1m", "s", "5", "5S", "1.5h", "99999999999999d", "5s\0", "５s", "µs"];
        for text in cases {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["250ms", "5s", "1h30m", "2d", "1d1h1m1s1ms"] {
            assert_eq!(display(parse(text).unwrap()), text);
        }
        assert_eq!(display(Duration::from_micros(40)), "40us");
        assert_eq!(display(Duration::ZERO), "0s");
    }
}
