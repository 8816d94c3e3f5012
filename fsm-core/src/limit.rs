//! Limits: how many calls run at once, and how many start in a span of time. Each is shared by all processes of a database.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
        Limit { concurrency: None, rate: Some(Rate { starts, per: Duration::from_secs(1), burst }) }
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
        let limit = Limit { concurrency: Some(5), rate: None };
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
        let none = Limit { concurrency: Some(0), rate: None }.room(Use { running: 0, next_at: at(0) }, at(0));
        assert_eq!(none, Room { starts: 0, next: None });
        assert_eq!(per_second(0, 1).room(Use { running: 0, next_at: at(0) }, at(SECOND)), Room { starts: 0, next: None });
    }

    #[test]
    fn a_full_limit_waits_for_an_end_and_not_for_its_rate() {
        let limit = Limit { concurrency: Some(1), ..per_second(10, 1) };
        let next_at = limit.after(at(0), 1, at(0));
        assert_eq!(limit.room(Use { running: 1, next_at }, at(0)), Room { starts: 0, next: None });
    }
}
