//! Which of the requests that wait go next: what was due lets what is fresh go first, and never stands still.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lines::{Left, Lines, Number};
use super::request::{InstanceKey, Request};
use crate::store::error::StoreError;

/// What was due has at least so many places in a batch, however much is fresh.
const LEAST: usize = 16;
/// So long after something fresh, more of it is expected.
const RECENT: Duration = Duration::from_millis(20);
/// Who waits behind so many has more than one commit to wait for.
const LONG: usize = 64;
/// The most that is claimed at a time.
const AT_A_TIME: usize = 128;

/// The waiting requests. Those that can go are of two kinds, each first come first served; the others stand in the lines of their instances.
#[derive(Default)]
pub(super) struct PriorityQueue {
    lines: Lines,
    /// What somebody has just asked for, and what follows from it here.
    fresh: VecDeque<Number>,
    /// What waited in the database for its time: the ends of attempts that were claimed, and timers.
    due: VecDeque<Number>,
    /// What is committed alone, of either kind.
    alone: VecDeque<Number>,
    /// What waits for a moment outside all lines: a retry, and what concerns several instances of which one is locked.
    later: BTreeMap<(Instant, Number), Request>,
    last_number: Number,
    /// When a batch had something fresh last, and how much.
    last_fresh: Option<(Instant, usize)>,
}

impl PriorityQueue {
    pub(super) fn put(&mut self, request: Request) {
        let mut touches = request.touches();
        touches.sort();
        touches.dedup();
        self.last_number += 1;
        let number = self.last_number;
        match self.lines.rest_of(&touches).filter(|_| touches.len() > 1) {
            // In the line of one that is locked it would keep those behind it in the other lines waiting.
            Some(until) => drop(self.later.insert((until, number), request)),
            None => {
                if self.lines.join(number, request, touches) {
                    self.can_go([number]);
                }
            }
        }
    }

    /// It joins its lines at that moment.
    pub(super) fn put_later(&mut self, request: Request, at: Instant) {
        self.last_number += 1;
        self.later.insert((at, self.last_number), request);
    }

    /// All that wait.
    pub(super) fn into_all(self) -> impl Iterator<Item = Request> {
        self.lines.into_waiting().chain(self.later.into_values())
    }

    /// How many can go.
    pub(super) fn ready(&self) -> usize {
        self.fresh.len() + self.due.len() + self.alone.len()
    }

    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.priority_queue() == 0 && self.later.is_empty()
    }

    /// Nobody waits, and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.later.is_empty()
    }

    /// Takes up to `most` for a batch, no two for the same instance and none for one that is under way; now they are.
    pub(super) fn pick(&mut self, most: usize, now: Instant) -> Vec<Request> {
        let others = self.fresh.front().into_iter().chain(self.due.front()).min();
        if let Some(number) = self.alone.pop_front_if(|alone| others.is_none_or(|other| *alone < *other)) {
            return self.lines.take(number).into_iter().collect();
        }
        let kept = self.due.len().min(LEAST).min(most / 2);
        let fresh = self.fresh.len().min(most - kept);
        let mut batch: Vec<_> = self.fresh.drain(..fresh).filter_map(|number| self.lines.take(number)).collect();
        if fresh > 0 {
            self.last_fresh = Some((now, fresh));
        }
        let due = self.due.len().min(most.min(fresh.saturating_add(self.room(now))) - fresh);
        batch.extend(self.due.drain(..due).filter_map(|number| self.lines.take(number)));
        batch
    }

    /// These were carried out or answered, unless they are set apart or were put back.
    pub(super) fn leave(&mut self, numbers: &[Number]) {
        for number in numbers {
            if self.lines.is_in_lane(*number) {
                self.left(*number);
            }
        }
    }

    /// One that was set apart was carried out or answered, unless it was put back. Whether it was.
    pub(super) fn leave_apart(&mut self, number: Number) -> bool {
        let was_put_back = !self.lines.is_apart(number);
        if !was_put_back {
            self.left(number);
        }
        was_put_back
    }

    /// A task of its own carries these out.
    pub(super) fn set_apart(&mut self, numbers: impl IntoIterator<Item = Number>) {
        numbers.into_iter().for_each(|number| self.lines.set_apart(number));
    }

    /// Somebody else has locked these instances, and nothing of the request was written. It goes again after a rest, like all others that concern
    /// them. Gives it back if nobody waits for it, or if it has to be answered.
    pub(super) fn put_back(&mut self, request: Request, locked: &[InstanceKey], error: &Arc<StoreError>, now: Instant) -> Option<Request> {
        for target in locked {
            let Left { withdrawn, later } = self.lines.rest(target, error, now);
            for number in withdrawn {
                self.left(number);
            }
            for (until, request) in later {
                self.left(request.number);
                self.put_later(request, until);
            }
        }
        let number = request.number;
        let waits = request.waits_for_locks() && request.met_lock(error);
        if waits && request.touches().len() == 1 && locked.contains(&request.target) {
            self.last_number += 1;
            self.lines.put_back(request, self.last_number);
            return None;
        }
        let until = self.lines.rest_of(locked).unwrap_or(now);
        self.left(number);
        if !waits {
            return Some(request);
        }
        self.put_later(request, until);
        None
    }

    fn left(&mut self, number: Number) {
        let ready = self.lines.leave(number);
        self.can_go(ready);
    }

    /// What rested because of a lock goes on, and what is retried.
    pub(super) fn wake(&mut self, now: Instant) {
        let ready = self.lines.wake(now);
        self.can_go(ready);
        while self.later.first_key_value().is_some_and(|((until, _), _)| *until <= now) {
            let (_, request) = self.later.pop_first().expect("there is a first one");
            self.put(request);
        }
    }

    /// When something that rests goes on.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((until, _), _)| *until);
        [self.lines.next_wake(), later].into_iter().flatten().min()
    }

    fn can_go(&mut self, numbers: impl IntoIterator<Item = Number>) {
        for number in numbers {
            let ready = match (self.lines.is_alone(number), self.lines.was_due(number)) {
                (true, _) => &mut self.alone,
                (false, true) => &mut self.due,
                (false, false) => &mut self.fresh,
            };
            ready.push_back(number);
        }
    }

    /// How much more is worth claiming now. What is due waits in the database rather than here, where it would make commits long.
    pub(super) fn wanted(&self, now: Instant) -> usize {
        match self.room(now) {
            usize::MAX if self.ready() <= LONG => AT_A_TIME,
            usize::MAX => 0,
            room if self.due.len() < room => (2 * room).min(AT_A_TIME),
            _ => 0,
        }
    }

    /// How much of what was due a commit can take along: as much as was fresh in it, so that who asked waits little longer for it.
    fn room(&self, now: Instant) -> usize {
        match self.last_fresh {
            Some((when, fresh)) if now.saturating_duration_since(when) < RECENT => fresh.max(LEAST),
            _ => usize::MAX,
        }
    }

    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.lines.steps
    }
}

#[cfg(test)]
mod tests;
