//! The waiting requests, with a queue for each instance. One request of a queue is in flight at a time. The cost of an operation does not
//! depend on the length of a queue.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use fsm_core::commit::instance_key::{InstanceKey, InstanceMap};
use fsm_store::error::StoreError;

use super::request::{Number, Request};

/// The first and the longest backoff of a queue whose instance is locked by another transaction. It doubles each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// All queues. A request for several instances stands in the queue of each, and can be taken once it is the first in all of them.
#[derive(Default)]
pub(super) struct InstanceQueues {
    requests: HashMap<Number, QueuedRequest>,
    queues: InstanceMap<InstanceQueue>,
    /// The queues that back off, by the end of their backoff.
    backoffs: BTreeSet<(Instant, InstanceKey)>,
    /// The number of requests that are not in flight.
    waiting: usize,
    /// The number of times that a queued was accessed.
    #[cfg(test)]
    pub(super) steps: usize,
}

struct QueuedRequest {
    /// `None` while it is in flight.
    request: Option<Request>,
    touches: Vec<InstanceKey>,
    /// The number of its queues in which it is not the first, or which back off.
    blocked: usize,
    /// It was moved from its lane to a task of its own.
    is_apart: bool,
}

#[derive(Default)]
struct InstanceQueue {
    /// The first request may be in flight. Numbers may remain of requests that have removed.
    numbers: VecDeque<Number>,
    backs_off_until: Option<Instant>,
    /// The number of consecutive backoffs.
    backoffs: u32,
}

/// The requests that must leave a queue that backs off.
#[derive(Default)]
pub(super) struct Removed {
    /// Their callers no longer wait.
    pub(super) withdrawn: Vec<Number>,
    /// They concern other instances too, and must not block those. Each has the time of its next try.
    pub(super) later: Vec<(Instant, Request)>,
}

impl InstanceQueues {
    /// Puts a request at the end of its queues. Returns true if it can go at once.
    pub(super) fn join(&mut self, number: Number, mut request: Request, touches: Vec<InstanceKey>) -> bool {
        let mut blocked = 0;
        for target in &touches {
            self.step();
            let queue = self.queues.entry(target.clone()).or_default();
            blocked += usize::from(!queue.numbers.is_empty());
            queue.numbers.push_back(number);
        }
        self.waiting += 1;
        request.number = number;
        self.requests.insert(number, QueuedRequest { request: Some(request), touches, blocked, is_apart: false });
        blocked == 0
    }

    /// Takes the request. It is in flight until it leaves.
    pub(super) fn take(&mut self, number: Number) -> Option<Request> {
        self.step();
        let request = self.requests.get_mut(&number)?.request.take()?;
        self.waiting -= 1;
        Some(request)
    }

    /// Removes a request that was carried out or answered. Returns the requests that can be taken now.
    pub(super) fn leave(&mut self, number: Number) -> Vec<Number> {
        let Some(queued) = self.requests.remove(&number) else { return Vec::new() };
        self.waiting -= usize::from(queued.request.is_some());
        let mut ready = Vec::new();
        for target in &queued.touches {
            self.step();
            let Some(queue) = self.queues.get_mut(target) else { continue };
            if queue.numbers.front() != Some(&number) {
                continue;
            }
            queue.numbers.pop_front();
            while queue.numbers.front().is_some_and(|next| !self.requests.contains_key(next)) {
                queue.numbers.pop_front();
            }
            match queue.numbers.front() {
                None => drop(self.queues.remove(target)),
                Some(_) if queue.backs_off_until.is_some() => {}
                Some(&next) => {
                    queue.backoffs = 0;
                    ready.extend(self.unblocked(next));
                }
            }
        }
        ready
    }

    /// Lets the queue of an instance back off that another transaction has locked. Removes the requests whose callers no longer wait and those
    /// that concern other instances too, and returns them.
    pub(super) fn back_off(&mut self, target: &InstanceKey, error: &Arc<StoreError>, now: Instant) -> Removed {
        let mut removed = Removed::default();
        let Some(queue) = self.queues.get_mut(target) else { return removed };
        let until = now + BACKOFF.0.saturating_mul(1 << queue.backoffs.min(16)).min(BACKOFF.1);
        queue.backoffs = queue.backoffs.saturating_add(1);
        if let Some(before) = queue.backs_off_until.replace(until) {
            self.backoffs.remove(&(before, target.clone()));
        }
        let numbers: Vec<_> = queue.numbers.iter().copied().collect();
        self.backoffs.insert((until, target.clone()));
        for number in numbers {
            self.step();
            let Some(QueuedRequest { request: Some(request), touches, .. }) = self.requests.get(&number) else { continue };
            if !request.met_lock(error) {
                removed.withdrawn.push(number);
            } else if touches.len() > 1 {
                removed.later.push((until, self.take(number).expect("it was there just now")));
            }
        }
        removed
    }

    /// Puts back a request that met a lock; nothing of it was written. It stays the first of its queue, which backs off. It gets a new number,
    /// because the task that took it will still release the old one.
    pub(super) fn put_back(&mut self, mut request: Request, number: Number) {
        let queued = self.requests.remove(&request.number).expect("it is under way");
        for target in &queued.touches {
            let queue = self.queues.get_mut(target).expect("it stands in its queues");
            *queue.numbers.front_mut().expect("it is the first") = number;
        }
        request.number = number;
        self.waiting += 1;
        self.requests.insert(number, QueuedRequest { request: Some(request), blocked: 1, is_apart: false, ..queued });
    }

    /// Ends the backoffs that are over at `now`. Returns the requests that can be taken now.
    pub(super) fn wake(&mut self, now: Instant) -> Vec<Number> {
        let mut ready = Vec::new();
        while self.backoffs.first().is_some_and(|(until, _)| *until <= now) {
            let (until, target) = self.backoffs.pop_first().expect("there is a first one");
            let Some(queue) = self.queues.get_mut(&target).filter(|queue| queue.backs_off_until == Some(until)) else { continue };
            queue.backs_off_until = None;
            if let Some(&first) = queue.numbers.front() {
                ready.extend(self.unblocked(first));
            }
        }
        ready
    }

    fn unblocked(&mut self, number: Number) -> Option<Number> {
        self.step();
        let queued = self.requests.get_mut(&number)?;
        queued.blocked = queued.blocked.saturating_sub(1);
        (queued.blocked == 0 && queued.request.is_some()).then_some(number)
    }

    /// The latest time until which one of these queues backs off.
    pub(super) fn backoff_of(&self, touches: &[InstanceKey]) -> Option<Instant> {
        touches.iter().filter_map(|target| self.queues.get(target)?.backs_off_until).max()
    }

    /// The time at which the next backoff ends.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.backoffs.first().map(|(until, _)| *until)
    }

    /// Marks a request as carried out by a task of its own. Its lane does not wait for it.
    pub(super) fn set_apart(&mut self, number: Number) {
        if let Some(queued) = self.requests.get_mut(&number) {
            queued.is_apart = true;
        }
    }

    /// Returns true if the request is in flight in a lane.
    pub(super) fn is_in_lane(&self, number: Number) -> bool {
        self.requests.get(&number).is_some_and(|queued| queued.request.is_none() && !queued.is_apart)
    }

    /// Returns true if the request was moved to a task of its own.
    pub(super) fn is_apart(&self, number: Number) -> bool {
        self.requests.get(&number).is_some_and(|queued| queued.is_apart)
    }

    /// Returns all waiting requests.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = Request> {
        self.requests.into_values().filter_map(|queued| queued.request)
    }

    pub(super) fn is_alone(&self, number: Number) -> bool {
        self.requests.get(&number).and_then(|queued| queued.request.as_ref()).is_some_and(|request| request.is_alone)
    }

    pub(super) fn was_due(&self, number: Number) -> bool {
        self.requests.get(&number).and_then(|queued| queued.request.as_ref()).is_some_and(Request::was_due)
    }

    /// The number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns true if no request waits and none is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    #[cfg(test)]
    fn step(&mut self) {
        self.steps += 1;
    }

    #[cfg(not(test))]
    fn step(&self) {}
}
