//! The waiting requests, with a queue (a line) for each instance. One request of a line goes at a time. The cost of an operation does not
//! depend on the length of a line.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;

use super::instance_key::{InstanceKey, InstanceMap};
use super::request::{Number, Request};
use crate::store::error::StoreError;

/// The first and the longest rest of a line whose instance is locked by another transaction. The rest doubles each time.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// All lines. A request for several instances stands in the line of each, and goes once it is the first in all of them.
#[derive(Default)]
pub(super) struct Lines {
    places: HashMap<Number, Place>,
    lines: InstanceMap<Line>,
    /// The lines that rest, by the end of their rest.
    rests: BTreeSet<(Instant, InstanceKey)>,
    /// The number of requests that are not in flight.
    waiting: usize,
    /// The number of times that a place was accessed.
    #[cfg(test)]
    pub(super) steps: usize,
}

struct Place {
    /// `None` while it is in flight.
    request: Option<Request>,
    touches: Vec<InstanceKey>,
    /// The number of its lines in which it is not the first, or which rest.
    blocked: usize,
    /// It was moved from its lane to a task of its own.
    is_apart: bool,
}

#[derive(Default)]
struct Line {
    /// The first request may be in flight. Numbers may remain of requests that have left.
    numbers: VecDeque<Number>,
    rests_until: Option<Instant>,
    /// The number of rests in a row.
    rests: u32,
}

/// The requests that must leave a line that rests.
#[derive(Default)]
pub(super) struct Left {
    /// Their callers no longer wait.
    pub(super) withdrawn: Vec<Number>,
    /// They concern other instances too, and must not block those. Each has the time of its next try.
    pub(super) later: Vec<(Instant, Request)>,
}

impl Lines {
    /// Puts a request at the end of its lines. Returns true if it can go at once.
    pub(super) fn join(&mut self, number: Number, mut request: Request, touches: Vec<InstanceKey>) -> bool {
        let mut blocked = 0;
        for target in &touches {
            self.step();
            let line = self.lines.entry(target.clone()).or_default();
            blocked += usize::from(!line.numbers.is_empty());
            line.numbers.push_back(number);
        }
        self.waiting += 1;
        request.number = number;
        self.places.insert(number, Place { request: Some(request), touches, blocked, is_apart: false });
        blocked == 0
    }

    /// Takes the request. It is in flight until it leaves.
    pub(super) fn take(&mut self, number: Number) -> Option<Request> {
        self.step();
        let request = self.places.get_mut(&number)?.request.take()?;
        self.waiting -= 1;
        Some(request)
    }

    /// Removes a request that was carried out or answered. Returns the requests that can go now.
    pub(super) fn leave(&mut self, number: Number) -> Vec<Number> {
        let Some(place) = self.places.remove(&number) else { return Vec::new() };
        self.waiting -= usize::from(place.request.is_some());
        let mut ready = Vec::new();
        for target in &place.touches {
            self.step();
            let Some(line) = self.lines.get_mut(target) else { continue };
            if line.numbers.front() != Some(&number) {
                continue;
            }
            line.numbers.pop_front();
            while line.numbers.front().is_some_and(|next| !self.places.contains_key(next)) {
                line.numbers.pop_front();
            }
            match line.numbers.front() {
                None => drop(self.lines.remove(target)),
                Some(_) if line.rests_until.is_some() => {}
                Some(&next) => {
                    line.rests = 0;
                    ready.extend(self.unblocked(next));
                }
            }
        }
        ready
    }

    /// Lets the line of an instance rest that another transaction has locked. Removes the requests whose callers no longer wait and those
    /// that concern other instances too, and returns them.
    pub(super) fn rest(&mut self, target: &InstanceKey, error: &Arc<StoreError>, now: Instant) -> Left {
        let mut left = Left::default();
        let Some(line) = self.lines.get_mut(target) else { return left };
        let until = now + REST.0.saturating_mul(1 << line.rests.min(16)).min(REST.1);
        line.rests = line.rests.saturating_add(1);
        if let Some(before) = line.rests_until.replace(until) {
            self.rests.remove(&(before, target.clone()));
        }
        let numbers: Vec<_> = line.numbers.iter().copied().collect();
        self.rests.insert((until, target.clone()));
        for number in numbers {
            self.step();
            let Some(Place { request: Some(request), touches, .. }) = self.places.get(&number) else { continue };
            if !request.met_lock(error) {
                left.withdrawn.push(number);
            } else if touches.len() > 1 {
                left.later.push((until, self.take(number).expect("it was there just now")));
            }
        }
        left
    }

    /// Puts back a request that met a lock; nothing of it was written. It stays the first of its line, which rests. It gets a new number,
    /// because the task that took it will still release the old one.
    pub(super) fn put_back(&mut self, mut request: Request, number: Number) {
        let place = self.places.remove(&request.number).expect("it is under way");
        for target in &place.touches {
            let line = self.lines.get_mut(target).expect("it stands in its lines");
            *line.numbers.front_mut().expect("it is the first") = number;
        }
        request.number = number;
        self.waiting += 1;
        self.places.insert(number, Place { request: Some(request), blocked: 1, is_apart: false, ..place });
    }

    /// Ends the rest of the lines that have rested until `now`. Returns the requests that can go now.
    pub(super) fn wake(&mut self, now: Instant) -> Vec<Number> {
        let mut ready = Vec::new();
        while self.rests.first().is_some_and(|(until, _)| *until <= now) {
            let (until, target) = self.rests.pop_first().expect("there is a first one");
            let Some(line) = self.lines.get_mut(&target).filter(|line| line.rests_until == Some(until)) else { continue };
            line.rests_until = None;
            if let Some(&first) = line.numbers.front() {
                ready.extend(self.unblocked(first));
            }
        }
        ready
    }

    fn unblocked(&mut self, number: Number) -> Option<Number> {
        self.step();
        let place = self.places.get_mut(&number)?;
        place.blocked = place.blocked.saturating_sub(1);
        (place.blocked == 0 && place.request.is_some()).then_some(number)
    }

    /// The latest time until which one of these lines rests.
    pub(super) fn rest_of(&self, touches: &[InstanceKey]) -> Option<Instant> {
        touches.iter().filter_map(|target| self.lines.get(target)?.rests_until).max()
    }

    /// The time at which the next rest ends.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.rests.first().map(|(until, _)| *until)
    }

    /// Marks a request as carried out by a task of its own. Its lane does not wait for it.
    pub(super) fn set_apart(&mut self, number: Number) {
        if let Some(place) = self.places.get_mut(&number) {
            place.is_apart = true;
        }
    }

    /// Returns true if the request is in flight in a lane.
    pub(super) fn is_in_lane(&self, number: Number) -> bool {
        self.places.get(&number).is_some_and(|place| place.request.is_none() && !place.is_apart)
    }

    /// Returns true if the request was moved to a task of its own.
    pub(super) fn is_apart(&self, number: Number) -> bool {
        self.places.get(&number).is_some_and(|place| place.is_apart)
    }

    /// Returns all waiting requests.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = Request> {
        self.places.into_values().filter_map(|place| place.request)
    }

    pub(super) fn is_alone(&self, number: Number) -> bool {
        self.places.get(&number).and_then(|place| place.request.as_ref()).is_some_and(|request| request.is_alone)
    }

    pub(super) fn was_due(&self, number: Number) -> bool {
        self.places.get(&number).and_then(|place| place.request.as_ref()).is_some_and(Request::was_due)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns true if no request waits and none is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[cfg(test)]
    fn step(&mut self) {
        self.steps += 1;
    }

    #[cfg(not(test))]
    fn step(&self) {}
}
