//! Points in time as microseconds since 1970, in UTC: the only form in which the database sees time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize, Serializer};

/// A point in time, in microseconds since 1970-01-01T00:00:00Z. Arithmetic saturates.
///
/// `Display` is RFC 3339 in UTC, with the fraction only where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest timestamp.
    pub const MAX: Timestamp = Timestamp(i64::MAX);
    /// The earliest point in time.
    pub const MIN: Timestamp = Timestamp(i64::MIN);

    /// The timestamp `us` microseconds after 1970-01-01T00:00:00Z; negative values are before it.
    pub const fn from_micros(us: i64) -> Self {
        Timestamp(us)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Serialises a timestamp as its RFC 3339 text, for `#[serde(serialize_with = …)]` on values that people and other programs read.
pub fn serialize_text<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(at)
}

/// Serialises an optional timestamp as [`serialize_text`], or as null.
pub fn serialize_optional_text<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    at.map(|at| at.to_string()).serialize(to)
}

/// Serialises a duration as whole microseconds.
pub fn serialize_micros<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(micros(*duration))
}

/// Serialises an optional duration as whole microseconds, or as null.
pub fn serialize_optional_micros<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    duration.map(micros).serialize(to)
}

/// The duration in whole microseconds, as the database stores it. Saturates at `i64::MAX`.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, wait: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(micros(wait)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, back: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(micros(back)))
    }
}

/// The time between two timestamps; zero if the right one is later.
impl Sub for Timestamp {
    type Output = Duration;
    fn sub(self, earlier: Timestamp) -> Duration {
        self.since(earlier)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(micros(after)),
            Err(before) => Timestamp(-micros(before.duration())),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        let moved = if time.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        moved.unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0.div_euclid(86_400_000_000), self.0.rem_euclid(86_400_000_000));
        let (year, month, day) = civil_from_days(days);
        let (seconds, us) = (in_day / 1_000_000, in_day % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match us {
            0 => {}
            us if us % 1000 == 0 => write!(f, ".{:03}", us / 1000)?,
            us => write!(f, ".{us:06}")?,
        }
        f.write_str("Z")
    }
}

/// The Gregorian date of a day that is counted from 1970-01-01. (The crate `jiff` has no dates outside of the years -9999 to 9999, which a
/// `Timestamp` can hold, and every user of the library would compile it for this function.) Internally a year starts in March, so that the
/// leap day is its last day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_700_000_000_123_000, "2023-11-14T22:13:20.123Z"),
            (4_102_444_799_000_001, "2099-12-31T23:59:59.000001Z"),
        ];
        for (us, text) in cases {
            assert_eq!(Timestamp::from_micros(us).to_string(), text);
        }
        let _ = (Timestamp::MAX.to_string(), Timestamp::from_micros(i64::MIN).to_string());
    }

    #[test]
    fn arithmetic_saturates_and_never_goes_below_zero() {
        let at = Timestamp::from_micros(5);
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(at - Timestamp::from_micros(9), Duration::ZERO);
        assert_eq!((at + Duration::from_secs(2)) - at, Duration::from_secs(2));
    }

    #[test]
    fn system_time_goes_there_and_back() {
        for us in [-1_500_000, 0, 1_700_000_000_000_001] {
            let at = Timestamp::from_micros(us);
            assert_eq!(Timestamp::from(SystemTime::from(at)), at);
        }
    }
}
