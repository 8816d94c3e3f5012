//! Priorities: which of the calls that are due start first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Of so many places, one is kept for normal calls and one for low ones.
const CYCLE: u64 = 8;

/// The priority of a send, and of the attempts of its call. If more calls are due than there are free slots, those of a higher priority start
/// first, and among equals the one that has been due for longest. Of eight starts, one is kept for normal calls and one for low ones, so that an
/// endless stream of high ones stops neither.
///
/// The events of one instance keep their order, whatever their priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Starts before the others.
    High,
    /// The default. Timers and the events of `ctx.next` have it too.
    #[default]
    Normal,
    /// Starts when no other call is due, and in one of eight places. It never starts in the commit of its send.
    Low,
}

impl Priority {
    /// All priorities, the highest first.
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

    /// The name on screens, in the command and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        }
    }

    /// The number in the database: a normal priority is null, so that rows without another one are as small as before.
    pub fn number(self) -> Option<i64> {
        match self {
            Priority::High => Some(-1),
            Priority::Normal => None,
            Priority::Low => Some(1),
        }
    }

    /// The priority with this number in the database. An unknown number is normal: it must not keep a row from being run.
    pub fn of_number(number: Option<i64>) -> Priority {
        match number {
            Some(..=-1) => Priority::High,
            Some(1..) => Priority::Low,
            Some(0) | None => Priority::Normal,
        }
    }

    /// True for the priority of a send that names none.
    pub fn is_normal(&self) -> bool {
        *self == Priority::Normal
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == word);
        known.ok_or_else(|| format!("`{}` is no priority: it is `high`, `normal` or `low`", word.escape_debug()))
    }
}

/// The places of one claim that go first to calls of a lower priority. Without such calls, others get them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// For normal calls.
    pub normal: u32,
    /// For low calls.
    pub low: u32,
}

/// Decides which places of a claim are kept, where `claimed` places were claimed before and at most `places` are claimed now. Over many claims,
/// also of one place each, one of eight places is kept for either.
pub fn kept(claimed: u64, places: u32) -> Kept {
    let multiples = |offset: u64| {
        let until = |end: u64| (end + offset) / CYCLE;
        u32::try_from(until(claimed + u64::from(places)) - until(claimed)).unwrap_or(u32::MAX)
    };
    Kept { normal: multiples(CYCLE / 2), low: multiples(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_eight_places_one_is_kept_for_normal_calls_and_one_for_low_ones() {
        let each: Vec<_> = (0..8).map(|claimed| kept(claimed, 1)).map(|kept| (kept.normal, kept.low)).collect();
        assert_eq!(each, [(0, 0), (0, 0), (0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 1)]);
        assert_eq!(kept(0, 64), Kept { normal: 8, low: 8 });
        assert_eq!(kept(3, 1), Kept { normal: 1, low: 0 });
    }

    #[test]
    fn claims_of_any_size_keep_the_same_share() {
        let sizes = (0..1000u64).map(|n| u32::try_from(n * 48_271 % 11).unwrap_or(0));
        let (mut claimed, mut all) = (0, Kept::default());
        for size in sizes {
            let now = kept(claimed, size);
            assert!(now.normal + now.low <= size, "{size} places, of which {now:?} are kept");
            all = Kept { normal: all.normal + now.normal, low: all.low + now.low };
            claimed += u64::from(size);
        }
        assert_eq!((u64::from(all.normal), u64::from(all.low)), ((claimed + 4) / 8, claimed / 8));
    }

    #[test]
    fn a_priority_has_a_word_and_a_number() {
        for priority in Priority::ALL {
            assert_eq!(priority.as_str().parse(), Ok(priority));
            assert_eq!(Priority::of_number(priority.number()), priority);
        }
        assert!(Priority::High < Priority::Normal && Priority::Normal < Priority::Low);
        assert!("urgent".parse::<Priority>().is_err());
    }
}
