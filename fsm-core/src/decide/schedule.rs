//! Schedules: which moment is sent now, and which one comes next.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::time::Timestamp;

/// A moment that is not sent this long after its time counts as missed.
pub const LATE: Duration = Duration::from_secs(60);

/// The moments that are sent after a time in which no worker could send them.
///
/// A moment is *missed* if it was not sent and a later one is due already, or if it is more than a minute late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Missed {
    /// The newest moment is sent, the older ones are not.
    #[default]
    Latest,
    /// Every moment is sent, the oldest first.
    All,
    /// No missed moment is sent.
    Skip,
}

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The moment that is sent.
    pub send: Option<Timestamp>,
    /// The first moment after this step; `None` if there is none.
    pub next: Option<Timestamp>,
}

/// Decides the step of a schedule at `now`. `next` is its first moment that was not decided yet. Returns `None` if nothing is due.
///
/// `after` returns the first moment after a given time. A step sends at most one moment, so that it can be committed alone; more may be due
/// after it.
pub fn step(next: Timestamp, now: Timestamp, missed: Missed, after: impl Fn(Timestamp) -> Option<Timestamp>) -> Option<Step> {
    if next > now {
        return None;
    }
    if missed == Missed::All {
        return Some(Step { send: Some(next), next: after(next) });
    }
    let newest = newest(next, now, &after);
    let is_sent = missed == Missed::Latest || now.since(newest) <= LATE;
    Some(Step { send: is_sent.then_some(newest), next: after(newest) })
}

/// The newest moment that is due at `now`, where `first` is one that is. The search halves the time, so that a second and a century take
/// about as long.
fn newest(first: Timestamp, now: Timestamp, after: &impl Fn(Timestamp) -> Option<Timestamp>) -> Timestamp {
    let is_due = |from: Timestamp| after(from).filter(|next| *next <= now);
    // The newest moment found, and a time after which no moment is due.
    let (mut newest, mut end) = (first, now);
    while let Some(next) = is_due(newest) {
        let middle = Timestamp::from_micros(newest.as_micros() + (end.as_micros() - newest.as_micros()) / 2);
        match is_due(middle) {
            Some(later) => newest = later,
            None => (newest, end) = (next, middle),
        }
    }
    newest
}

impl Missed {
    /// The word for the value in the database and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Missed::Latest => "latest",
            Missed::All => "all",
            Missed::Skip => "skip",
        }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Missed {
    type Err = String;

    fn from_str(text: &str) -> Result<Missed, String> {
        [Missed::Latest, Missed::All, Missed::Skip]
            .into_iter()
            .find(|missed| missed.as_str() == text)
            .ok_or_else(|| format!("`{}` is none of `latest`, `all` and `skip`", text.escape_debug()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * SECOND_US)
    }

    /// The moments 100, 200, …, 1000, and 1001.
    fn after(from: Timestamp) -> Option<Timestamp> {
        (1..=10).map(|n| at(n * 100)).chain([at(1001)]).find(|moment| *moment > from)
    }

    #[test]
    fn nothing_is_sent_before_its_moment() {
        for missed in [Missed::Latest, Missed::All, Missed::Skip] {
            assert_eq!(step(at(100), at(99), missed, after), None);
            assert_eq!(step(at(100), at(100), missed, after), Some(Step { send: Some(at(100)), next: Some(at(200)) }));
        }
    }

    #[test]
    fn of_missed_moments_the_latest_all_or_none_are_sent() {
        let sent = |now: i64, missed: Missed| {
            let (mut next, mut sent) = (Some(at(100)), Vec::new());
            while let Some(Step { send, next: then }) = next.and_then(|next| step(next, at(now), missed, after)) {
                sent.extend(send.map(|moment| moment.as_micros() / SECOND_US));
                next = then;
            }
            assert_eq!(next, after(at(now)), "the next one is the first after now");
            sent
        };
        assert_eq!(sent(470, Missed::Latest), [400]);
        assert_eq!(sent(470, Missed::All), [100, 200, 300, 400]);
        assert_eq!(sent(470, Missed::Skip), [0; 0]);
        assert_eq!(sent(460, Missed::Skip), [400], "it is a minute late, and not more");
        assert_eq!(sent(160, Missed::Skip), [100]);
        assert_eq!(sent(161, Missed::Skip), [0; 0]);
        assert_eq!(sent(5000, Missed::Latest), [1001], "the last moment of all");
        assert_eq!(sent(5000, Missed::All).len(), 11);
    }

    #[test]
    fn a_long_time_without_workers_costs_few_looks() {
        let looks = std::cell::Cell::new(0);
        let every_second = |from: Timestamp| {
            looks.set(looks.get() + 1);
            Some(Timestamp::from_micros((from.as_micros().div_euclid(SECOND_US) + 1) * SECOND_US))
        };
        let a_century = 100 * 365 * 24 * 3600;
        let now = at(a_century) + Duration::from_micros(7);
        assert_eq!(step(at(1), now, Missed::Latest, every_second), Some(Step { send: Some(at(a_century)), next: Some(at(a_century + 1)) }));
        assert!(looks.get() < 200, "{} looks", looks.get());
    }

    #[test]
    fn the_words_of_missed_moments_go_there_and_back() {
        for missed in [Missed::Latest, Missed::All, Missed::Skip] {
            assert_eq!(missed.as_str().parse(), Ok(missed));
        }
        assert_eq!("some".parse::<Missed>(), Err("`some` is none of `latest`, `all` and `skip`".to_owned()));
    }
}
