//! The order in which waiting requests are committed: new requests take priority over the backlog, which always keeps a share of each
//! batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::commit::instance_key::InstanceKey;
use fsm_store::error::StoreError;

use super::instance_queues::{InstanceQueues, Removed};
use super::request::{Number, Request};

/// The minimum number of requests in a batch for the backlog.
const LEAST: usize = 16;
/// For this long after a new request, more new requests are expected.
const RECENT: Duration = Duration::from_millis(20);
/// With more than this number of requests in the queue, a request waits for more than one commit.
const LONG: usize = 64;
/// The maximum number of attempts that are claimed at a time.
const AT_A_TIME: usize = 128;

/// The waiting requests. Those that can be taken are either new requests or backlog, each kind in the order of arrival. The others wait in the
/// queues of their instances.
#[derive(Default)]
pub(super) struct PriorityQueue {
    queues: InstanceQueues,
    /// New requests of callers, and what follows directly from them in this process.
    fresh: VecDeque<Number>,
    /// The backlog: timers, and reports of attempts that waited in the database before they were claimed.
    due: VecDeque<Number>,
    /// Requests of both kinds that are committed alone.
    alone: VecDeque<Number>,
    /// Requests that wait outside the instance queues until a time: retries, and requests for several instances of which one is locked.
    later: BTreeMap<(Instant, Number), Request>,
    last_number: Number,
    /// The time of the last batch that had new requests, and their number.
    last_fresh: Option<(Instant, usize)>,
}

impl PriorityQueue {
    pub(super) fn put(&mut self, request: Request) {
        let mut touches = request.touches();
        touches.sort();
        touches.dedup();
        self.last_number += 1;
        let number = self.last_number;
        match self.queues.backoff_of(&touches).filter(|_| touches.len() > 1) {
            // In the queue of a locked instance it would also block the requests behind it in its other queues.
            Some(until) => drop(self.later.insert((until, number), request)),
            None => {
                if self.queues.join(number, request, touches) {
                    self.mark_ready([number]);
                }
            }
        }
    }

    /// Lets the request join its queues at that time.
    pub(super) fn put_later(&mut self, request: Request, at: Instant) {
        self.last_number += 1;
        self.later.insert((at, self.last_number), request);
    }

    /// Returns all waiting requests.
    pub(super) fn into_all(self) -> impl Iterator<Item = Request> {
        self.queues.into_waiting().chain(self.later.into_values())
    }

    /// The number of requests that can be taken now.
    pub(super) fn ready(&self) -> usize {
        self.fresh.len() + self.due.len() + self.alone.len()
    }

    /// Returns true if no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.waiting() == 0 && self.later.is_empty()
    }

    /// Returns true if no request waits and none is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.later.is_empty()
    }

    /// Takes up to `most` requests for a batch: no two for the same instance and none for an instance that is in flight.
    pub(super) fn pick(&mut self, most: usize, now: Instant) -> Vec<Request> {
        let others = self.fresh.front().into_iter().chain(self.due.front()).min();
        if let Some(number) = self.alone.pop_front_if(|alone| others.is_none_or(|other| *alone < *other)) {
            return self.queues.take(number).into_iter().collect();
        }
        let kept = self.due.len().min(LEAST).min(most / 2);
        let fresh = self.fresh.len().min(most - kept);
        let mut batch: Vec<_> = self.fresh.drain(..fresh).filter_map(|number| self.queues.take(number)).collect();
        if fresh > 0 {
            self.last_fresh = Some((now, fresh));
        }
        let due = self.due.len().min(most.min(fresh.saturating_add(self.room(now))) - fresh);
        batch.extend(self.due.drain(..due).filter_map(|number| self.queues.take(number)));
        batch
    }

    /// Removes requests that were carried out or answered, except those that were set apart or put back.
    pub(super) fn leave(&mut self, numbers: &[Number]) {
        for number in numbers {
            if self.queues.is_in_lane(*number) {
                self.remove(*number);
            }
        }
    }

    /// Removes a request that was set apart, unless it was put back. Returns true if it was put back.
    pub(super) fn leave_apart(&mut self, number: Number) -> bool {
        let was_put_back = !self.queues.is_apart(number);
        if !was_put_back {
            self.remove(number);
        }
        was_put_back
    }

    /// Marks requests as carried out by a task of their own.
    pub(super) fn set_apart(&mut self, numbers: impl IntoIterator<Item = Number>) {
        numbers.into_iter().for_each(|number| self.queues.set_apart(number));
    }

    /// Puts back a request whose instances `locked` are locked by another transaction; nothing of it was written. It backs off, like all other
    /// requests for these instances, and is then tried again. Returns the request if it has to be answered instead, or if its caller has
    /// given up.
    pub(super) fn put_back(&mut self, request: Request, locked: &[InstanceKey], error: &Arc<StoreError>, now: Instant) -> Option<Request> {
        for target in locked {
            let Removed { withdrawn, later } = self.queues.back_off(target, error, now);
            for number in withdrawn {
                self.remove(number);
            }
            for (until, request) in later {
                self.remove(request.number);
                self.put_later(request, until);
            }
        }
        let number = request.number;
        let waits = request.waits_for_locks() && request.met_lock(error);
        let concerns_one = request.touches().iter().all(|touched| *touched == request.target);
        if waits && concerns_one && locked.contains(&request.target) {
            self.last_number += 1;
            self.queues.put_back(request, self.last_number);
            return None;
        }
        let until = self.queues.backoff_of(locked).unwrap_or(now);
        self.remove(number);
        if !waits {
            return Some(request);
        }
        self.put_later(request, until);
        None
    }

    fn remove(&mut self, number: Number) {
        let ready = self.queues.leave(number);
        self.mark_ready(ready);
    }

    /// Ends the backoffs that are over at `now`.
    pub(super) fn wake(&mut self, now: Instant) {
        let ready = self.queues.wake(now);
        self.mark_ready(ready);
        while self.later.first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            let (_, request) = self.later.pop_first().expect("there is a first one");
            self.put(request);
        }
    }

    /// The time at which the next backoff ends.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((until, _), _)| *until);
        [self.queues.next_wake(), later].into_iter().flatten().min()
    }

    fn mark_ready(&mut self, numbers: impl IntoIterator<Item = Number>) {
        for number in numbers {
            let ready = match (self.queues.is_alone(number), self.queues.was_due(number)) {
                (true, _) => &mut self.alone,
                (false, true) => &mut self.due,
                (false, false) => &mut self.fresh,
            };
            ready.push_back(number);
        }
    }

    /// The number of further attempts that are worth claiming now. Due work waits in the database rather than here, where it would make
    /// commits long.
    pub(super) fn wanted(&self, now: Instant) -> usize {
        match self.room(now) {
            usize::MAX if self.ready() <= LONG => AT_A_TIME,
            usize::MAX => 0,
            room if self.due.len() < room => (2 * room).min(AT_A_TIME),
            _ => 0,
        }
    }

    /// The room for backlog in a commit: as much as it has new requests, so that the callers wait only a little longer.
    fn room(&self, now: Instant) -> usize {
        match self.last_fresh {
            Some((when, fresh)) if now.saturating_duration_since(when) < RECENT => fresh.max(LEAST),
            _ => usize::MAX,
        }
    }

    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.queues.steps
    }
}

#[cfg(test)]
mod random_walk;
#[cfg(test)]
mod tests;
