//! Limits: how many calls run at once, and how many start in a span of time. Each is shared by all processes of a database.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::display;
use crate::fair::DueCall;
use crate::ids::InstanceId;
use crate::priority::{Kept, Priority};
use crate::retry::as_micros;
use crate::time::Timestamp;

/// A start that comes late by up to this time is made up for. Otherwise the delay of each claim would lower the rate.
const LATENESS_US: i64 = 50_000;

/// The setting of a limit. Without a concurrency and a rate, everything may start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The maximum number of calls that run at once; 0 stops all starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The maximum rate of starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The search field of which each value has these numbers for itself. `None`: they are for all calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A rate of starts, spaced evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The number of starts; 0 stops all.
    pub starts: u32,
    /// In this time.
    #[serde(rename = "per_us", with = "as_micros")]
    pub per: Duration,
    /// The number of starts that may happen at the same time after a pause; at least 1.
    pub burst: u32,
}

/// The rate as text, such as `20 in 1s, 5 at once`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.starts, display(self.per))?;
        if self.burst > 1 { write!(f, ", {} at once", self.burst) } else { Ok(()) }
    }
}

/// The present use of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// The number of calls that run.
    pub running: u32,
    /// The time at which the next start is due by the rate: the theoretical arrival time of GCRA, the generic cell rate algorithm.
    pub next_at: Timestamp,
}

/// The answer of a limit: the number of calls that may start now, and the time at which more may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The number of calls that may start now.
    pub starts: u32,
    /// If none may start: the time at which the rate admits the next one. `None` if a running call has to end first.
    pub next: Option<Timestamp>,
}

/// The due calls of one value under a limit by value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The number of calls that may start now.
    pub starts: u32,
    /// The first calls of each priority that are due.
    pub due: Vec<DueCall>,
}

/// The separator in the name of a bucket. The name of a limit does not contain it.
pub const SEPARATOR: char = '=';

/// The bucket of a value under a limit by value, such as `tenant=acme`. Calls of instances without a value share that of the empty value.
pub fn bucket(limit: &str, value: &str) -> String {
    format!("{limit}{SEPARATOR}{value}")
}

/// The limit of a bucket, and its value. A call that has no value yet has the limit's name alone.
pub fn parts(bucket: &str) -> (&str, Option<&str>) {
    bucket.split_once(SEPARATOR).map_or((bucket, None), |(limit, value)| (limit, Some(value)))
}

/// The limit of a call for people: `"stripe"`, or `"tenant" of "acme"`.
pub fn shown(bucket: &str) -> String {
    match parts(bucket) {
        (limit, None) => format!("\"{limit}\""),
        (limit, Some("")) => format!("\"{limit}\" of those without a value"),
        (limit, Some(value)) => format!("\"{limit}\" of \"{}\"", value.escape_debug()),
    }
}

/// Decides which due calls of these values start: by priority, then by time, and of each value no more than may start. A value without room hides
/// no other. Kept places go to calls of their priority first. Each call comes with the place of its group.
pub fn admit(groups: &[Group], places: u32, kept: Kept) -> Vec<(usize, InstanceId)> {
    let mut due: Vec<_> = groups.iter().enumerate().flat_map(|(group, of)| of.due.iter().map(move |call| (group, *call))).collect();
    due.sort_by_key(|(_, call)| (call.priority, call.due_at));
    let mut left: Vec<u32> = groups.iter().map(|group| group.starts).collect();
    let mut admitted = Vec::new();
    for (priority, most) in [(Some(Priority::Normal), kept.normal), (Some(Priority::Low), kept.low), (None, places)] {
        let mut free = most.min(places.saturating_sub(admitted.len() as u32));
        due.retain(|(group, call)| {
            let starts = free > 0 && left[*group] > 0 && priority.is_none_or(|priority| priority == call.priority);
            if starts {
                free -= 1;
                left[*group] -= 1;
                admitted.push((*group, call.instance));
            }
            !starts
        });
    }
    admitted
}

impl Limit {
    /// Returns how many calls may start at `now`.
    pub fn room(&self, used: Use, now: Timestamp) -> Room {
        let free = self.concurrency.map_or(u32::MAX, |most| most.saturating_sub(used.running));
        let by_rate = self.rate.map_or(u32::MAX, |rate| rate.starts_at(used.next_at, now));
        let next = match (free, by_rate, self.rate) {
            (1.., 0, Some(rate)) => rate.next(used.next_at),
            _ => None,
        };
        Room { starts: free.min(by_rate), next }
    }

    /// Returns the time at which the next start is due by the rate, after `started` calls started at `now`.
    pub fn after(&self, next_at: Timestamp, started: u32, now: Timestamp) -> Timestamp {
        match self.rate.and_then(|rate| rate.interval_us()) {
            Some(interval) if started > 0 => {
                let taken = interval.saturating_mul(i64::from(started));
                Timestamp::from_micros(next_at.max(now).as_micros().saturating_add(taken))
            }
            _ => next_at,
        }
    }
}

impl Rate {
    /// The time between two starts, rounded up, so that the rate is never exceeded. `None` if nothing may start.
    fn interval_us(self) -> Option<i64> {
        let per_us = i64::try_from(self.per.as_micros()).unwrap_or(i64::MAX).max(1);
        let starts = i64::from(self.starts);
        (starts > 0).then(|| (per_us / starts + i64::from(per_us % starts != 0)).max(1))
    }

    /// The maximum time by which a start may precede its moment in an even spacing.
    fn tolerance_us(self, interval_us: i64) -> i64 {
        interval_us.saturating_mul(i64::from(self.burst.max(1)) - 1).max(LATENESS_US)
    }

    fn starts_at(self, next_at: Timestamp, now: Timestamp) -> u32 {
        let Some(interval) = self.interval_us() else { return 0 };
        let early = now.as_micros().saturating_add(self.tolerance_us(interval)).saturating_sub(next_at.max(now).as_micros());
        if early < 0 { 0 } else { u32::try_from(early / interval + 1).unwrap_or(u32::MAX) }
    }

    fn next(self, next_at: Timestamp) -> Option<Timestamp> {
        let interval = self.interval_us()?;
        Some(Timestamp::from_micros(next_at.as_micros().saturating_sub(self.tolerance_us(interval))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn at(us: i64) -> Timestamp {
        Timestamp::from_micros(1_000 * SECOND + us)
    }

    fn per_second(starts: u32, burst: u32) -> Limit {
        Limit { concurrency: None, rate: Some(Rate { starts, per: Duration::from_secs(1), burst }), by: None }
    }

    /// Starts as many calls as may, at each of these moments. Returns the moments of the starts.
    fn starts(limit: &Limit, looks: impl Iterator<Item = i64>) -> Vec<i64> {
        let (mut next_at, mut all) = (at(0), Vec::new());
        for look in looks {
            let room = limit.room(Use { running: 0, next_at }, at(look));
            next_at = limit.after(next_at, room.starts, at(look));
            all.extend((0..room.starts).map(|_| look));
        }
        all
    }

    #[test]
    fn concurrency_counts_what_runs() {
        let limit = Limit { concurrency: Some(5), ..Limit::default() };
        let room = |running| limit.room(Use { running, next_at: at(0) }, at(0));
        assert_eq!([0, 3, 5, 9].map(|running| room(running).starts), [5, 2, 0, 0]);
        assert_eq!(room(5).next, None);
    }

    #[test]
    fn a_rate_of_20_is_20_and_one_more_at_most_in_any_second_however_late_the_looks_are() {
        let mut late: i64 = 7;
        let looks = (0..10_000).scan(0, move |now, _| {
            late = (late * 48_271) % 2_147_483_647;
            *now += 200 + late % 9_000;
            Some(*now)
        });
        let all = starts(&per_second(20, 1), looks);
        let seconds = (all.last().expect("there were starts") / SECOND).max(1);
        assert!(all.len() as i64 >= 20 * seconds - 1, "{} in {seconds} s", all.len());
        for (place, first) in all.iter().enumerate() {
            let within = all[place..].iter().take_while(|start| **start < first + SECOND).count();
            assert!(within <= 21, "{within} within a second from {first}");
        }
    }

    #[test]
    fn a_rate_says_when_the_next_may_start() {
        let limit = per_second(10, 1);
        let next_at = limit.after(at(0), 1, at(0));
        let room = limit.room(Use { running: 0, next_at }, at(0));
        assert_eq!((room.starts, room.next), (0, Some(at(50_000))));
        assert_eq!(limit.room(Use { running: 0, next_at }, at(50_000)).starts, 1);
    }

    #[test]
    fn a_burst_starts_at_once_after_a_pause_and_no_more() {
        let limit = per_second(20, 10);
        let room = limit.room(Use { running: 0, next_at: at(-SECOND) }, at(0));
        assert_eq!(room.starts, 10);
        let next_at = limit.after(at(-SECOND), 10, at(0));
        assert_eq!(limit.room(Use { running: 0, next_at }, at(0)).next, Some(at(50_000)));
    }

    #[test]
    fn zero_stops_all_starts() {
        let none = Limit { concurrency: Some(0), ..Limit::default() }.room(Use { running: 0, next_at: at(0) }, at(0));
        assert_eq!(none, Room { starts: 0, next: None });
        assert_eq!(per_second(0, 1).room(Use { running: 0, next_at: at(0) }, at(SECOND)), Room { starts: 0, next: None });
    }

    #[test]
    fn a_full_limit_waits_for_an_end_and_not_for_its_rate() {
        let limit = Limit { concurrency: Some(1), ..per_second(10, 1) };
        let next_at = limit.after(at(0), 1, at(0));
        assert_eq!(limit.room(Use { running: 1, next_at }, at(0)), Room { starts: 0, next: None });
    }

    fn call(n: u128, priority: Priority, due_at: i64) -> DueCall {
        DueCall { instance: InstanceId(uuid::Uuid::from_u128(n)), priority, due_at: at(due_at) }
    }

    fn admitted(groups: &[Group], places: u32, kept: Kept) -> Vec<u128> {
        admit(groups, places, kept).into_iter().map(|(_, instance)| instance.0.as_u128()).collect()
    }

    #[test]
    fn a_value_without_room_hides_no_other() {
        let full = Group { starts: 0, due: (0..9).map(|n| call(n, Priority::High, n as i64)).collect() };
        let one = Group { starts: 1, due: vec![call(20, Priority::Low, 99), call(21, Priority::Normal, 98)] };
        assert_eq!(admitted(&[full.clone(), one], 8, Kept::default()), [21]);
        let two = Group { starts: 2, ..full };
        assert_eq!(admitted(&[two.clone(), two], 3, Kept::default()), [0, 0, 1]);
    }

    #[test]
    fn kept_places_hold_over_all_values_and_within_the_room_of_each() {
        let high = Group { starts: 9, due: (0..9).map(|n| call(n, Priority::High, n as i64)).collect() };
        let low = Group { starts: 1, due: vec![call(20, Priority::Low, 1), call(21, Priority::Low, 2)] };
        assert_eq!(admitted(&[high.clone(), low.clone()], 3, Kept { normal: 1, low: 2 }), [20, 0, 1]);
        assert_eq!(admitted(&[high, Group { starts: 0, ..low }], 2, Kept { normal: 0, low: 1 }), [0, 1]);
    }

    #[test]
    fn a_bucket_says_its_limit_and_its_value() {
        assert_eq!(parts(&bucket("tenant", "a=b")), ("tenant", Some("a=b")));
        assert_eq!((parts(&bucket("tenant", "")), parts("tenant")), (("tenant", Some("")), ("tenant", None)));
    }
}
