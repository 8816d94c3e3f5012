//! The moments of a schedule: those of a cron expression in a time zone, or those of an interval.

use std::fmt;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use fsm_core::duration;
use fsm_core::time::{Timestamp, micros};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// The maximum length of a cron expression, in bytes.
const LONGEST: usize = 128;
/// The shortest interval.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval.
const LONGEST_INTERVAL: Duration = Duration::from_secs(366 * 24 * 3600);
/// The number of times that a zone's offset may change between two moments. A rule that changes it twice a year has no moment in 50 years
/// then.
const MOST_CHANGES: usize = 100;

/// The moments at which a schedule sends.
#[derive(Clone)]
pub(crate) struct Calendar {
    moments: Moments,
    zone: TimeZone,
}

#[derive(Clone)]
enum Moments {
    /// The multiples of an interval since 1970, in microseconds.
    Every(i64),
    Cron {
        cron: Box<Cron>,
        /// The expression names times of day; otherwise it names a rhythm.
        is_fixed: bool,
    },
}

/// When a schedule sends, as its declaration says and as the database stores it: a cron expression, or `every` and an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timetable {
    Cron(String),
    Every(String),
}

/// The text before the interval, where the database stores one.
const EVERY: &str = "every ";

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timetable::Cron(expression) => f.write_str(expression),
            Timetable::Every(interval) => write!(f, "{EVERY}{interval}"),
        }
    }
}

impl Timetable {
    /// The timetable with this text in the database.
    pub(crate) fn of(stored: &str) -> Timetable {
        match stored.strip_prefix(EVERY) {
            Some(interval) => Timetable::Every(interval.to_owned()),
            None => Timetable::Cron(stored.to_owned()),
        }
    }
}

impl Calendar {
    /// The calendar of a timetable in the zone with this name. The error says what is wrong.
    pub(crate) fn new(timetable: &Timetable, zone: &str) -> Result<Calendar, String> {
        let moments = match timetable {
            Timetable::Cron(expression) => {
                let cron = parse(expression)?;
                let is_fixed = names_times_of_day(expression);
                Moments::Cron { cron: Box::new(cron), is_fixed }
            }
            Timetable::Every(interval) => {
                let every = duration::parse(interval).map_err(|why| why.to_string())?;
                if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&every) {
                    let (shortest, longest) = (duration::display(SHORTEST_INTERVAL), duration::display(LONGEST_INTERVAL));
                    return Err(format!("an interval has at least {shortest} and at most {longest}, not {}", duration::display(every)));
                }
                Moments::Every(micros(every))
            }
        };
        let zone = TimeZone::get(zone).map_err(|_| {
            format!(
                "there is no time zone `{}`; a zone has a name of the IANA database, like `Europe/Berlin` or `UTC`",
                zone.escape_debug()
            )
        })?;
        Ok(Calendar { moments, zone })
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first moment after `from`; `None` if there is none.
    pub(crate) fn after(&self, from: Timestamp) -> Option<Timestamp> {
        match &self.moments {
            Moments::Every(every_us) => {
                let next_us = from.as_micros().div_euclid(*every_us).checked_add(1)?.checked_mul(*every_us)?;
                Some(Timestamp::from_micros(next_us))
            }
            // The fraction of a second is cut off, so the search begins after the second in which `from` is.
            Moments::Cron { cron, is_fixed } => {
                let from = jiff::Timestamp::from_second(from.as_micros().div_euclid(1_000_000)).ok()?;
                let next = if *is_fixed { self.fixed_after(cron, from) } else { self.rhythm_after(cron, from) }?;
                Some(Timestamp::from_micros(next.as_microsecond()))
            }
        }
    }

    /// The first moment of times of day. A time that the clock skips is at the end of the gap, and one that it shows twice is at the first.
    fn fixed_after(&self, cron: &Cron, from: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut civil = self.zone.to_datetime(from);
        // A time in a gap that `from` has left is at the end of the gap: not after `from`. One that the clock shows the second time was at the
        // first. The search ends at the latest when the clock shows new times.
        loop {
            civil = cron.find_next_occurrence(&civil, false).ok()?;
            let moment = self.instant(civil)?;
            if moment > from {
                return Some(moment);
            }
        }
    }

    /// The instant of a time of day.
    fn instant(&self, civil: DateTime) -> Option<jiff::Timestamp> {
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            // The later offset is that after the gap: the instant is within the last hour before it.
            AmbiguousOffset::Gap { after, .. } => {
                let before = after.to_timestamp(civil).ok()?;
                self.zone.following(before).next().map(|change| change.timestamp())
            }
        }
    }

    /// The first moment of a rhythm: the next instant at which the clock shows a time that matches. The times that the clock skips are left
    /// out, and those that it shows twice come twice.
    fn rhythm_after(&self, cron: &Cron, from: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut from, mut is_included) = (from, false);
        for _ in 0..MOST_CHANGES {
            let offset = self.zone.to_offset(from);
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            let civil = cron.find_next_occurrence(&offset.to_datetime(from), is_included).ok()?;
            let moment = offset.to_timestamp(civil).ok()?;
            match change {
                Some(change) if moment >= change => (from, is_included) = (change, true),
                _ => return Some(moment),
            }
        }
        None
    }
}

/// Parses a cron expression of five fields, or of six with the seconds first.
fn parse(expression: &str) -> Result<Cron, String> {
    let reject = |why: &str| {
        let shown: String = expression.chars().take(LONGEST).flat_map(char::escape_debug).collect();
        let why = why.trim_end_matches('.');
        format!("`{shown}` is not a cron expression: {why}; one is `minute hour day month weekday`, like `0 2 * * *`")
    };
    if expression.len() > LONGEST {
        return Err(reject(&format!("it has {} bytes, and at most {LONGEST} are allowed", expression.len())));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(expression).map_err(|why| reject(&why.to_string()))
}

/// Returns true if the expression names times of day, like `30 2 * * *`, and false if it names a rhythm, like `*/10 * * * *`: if its minute
/// or its hour begins with `*`.
fn names_times_of_day(expression: &str) -> bool {
    let fields: Vec<_> = expression.split_whitespace().collect();
    let has_seconds = fields.len() > 5;
    let begins_with_a_star = |field: &&str| field.starts_with('*');
    let is_hourly = fields.len() == 1 && expression.trim().eq_ignore_ascii_case("@hourly");
    !is_hourly && !fields.iter().skip(usize::from(has_seconds)).take(2).any(begins_with_a_star)
}

#[cfg(test)]
mod tests;
