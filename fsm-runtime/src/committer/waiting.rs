//! Which of the requests that wait go next: what was due lets what is fresh go first, and never stands still.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::request::{Request, Whose};

/// What was due has at least so many places in a batch, however much is fresh.
const LEAST: usize = 16;
/// So long after something fresh, more of it is expected.
const RECENT: Duration = Duration::from_millis(20);
/// Who waits behind so many has more than one commit to wait for.
const LONG: usize = 64;
/// The most that is claimed at a time.
const AT_A_TIME: usize = 128;

/// The waiting requests, of each kind first come first served.
#[derive(Default)]
pub(super) struct Waiting {
    /// What somebody has just asked for, and what follows from it here.
    fresh: VecDeque<Request>,
    /// What waited in the database for its time: the ends of attempts that were claimed, and timers.
    due: VecDeque<Request>,
    /// When a batch had something fresh last, and how much.
    last_fresh: Option<(Instant, usize)>,
}

impl Waiting {
    pub(super) fn put(&mut self, request: Request) {
        if request.was_due() { self.due.push_back(request) } else { self.fresh.push_back(request) }
    }

    /// All of them.
    pub(super) fn into_all(self) -> impl Iterator<Item = Request> {
        self.fresh.into_iter().chain(self.due)
    }

    pub(super) fn len(&self) -> usize {
        self.fresh.len() + self.due.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.due.is_empty()
    }

    /// Takes up to `most` for a batch, no two for the same instance and none for one that is `under_way`; now they are.
    pub(super) fn pick(&mut self, most: usize, under_way: &mut HashSet<Whose>, now: Instant) -> Vec<Request> {
        let kept = self.due.len().min(LEAST).min(most / 2);
        let mut batch = Batch { requests: Vec::new(), under_way, passed_over: HashSet::new(), is_full: false };
        batch.fill(&mut self.fresh, most - kept);
        let fresh = batch.requests.len();
        if fresh > 0 {
            self.last_fresh = Some((now, fresh));
        }
        let until = most.min(fresh.saturating_add(self.room(now)));
        batch.fill(&mut self.due, until);
        batch.requests
    }

    /// How much more is worth claiming now. What is due waits in the database rather than here, where it would make commits long.
    pub(super) fn wanted(&self, now: Instant) -> usize {
        match self.room(now) {
            usize::MAX if self.len() <= LONG => AT_A_TIME,
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
}

/// A batch that is being put together.
struct Batch<'u> {
    requests: Vec<Request>,
    under_way: &'u mut HashSet<Whose>,
    /// An instance that one waiting request had to be left for is left for those behind it too: order is kept.
    passed_over: HashSet<Whose>,
    /// Its only request is committed alone.
    is_full: bool,
}

impl Batch<'_> {
    /// Takes what can be taken until the batch has so many.
    fn fill(&mut self, waiting: &mut VecDeque<Request>, until: usize) {
        let mut left = VecDeque::new();
        while !self.is_full
            && self.requests.len() < until
            && let Some(request) = waiting.pop_front()
        {
            let touches = request.touches();
            let is_in_the_way = request.is_alone && !self.requests.is_empty();
            if is_in_the_way || touches.iter().any(|whose| self.under_way.contains(whose) || self.passed_over.contains(whose)) {
                self.passed_over.extend(touches);
                left.push_back(request);
            } else {
                let is_alone = request.is_alone;
                self.under_way.extend(touches);
                self.requests.push(request);
                if is_alone {
                    self.is_full = true;
                    break;
                }
            }
        }
        while let Some(request) = left.pop_back() {
            waiting.push_front(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsm_core::call::{Attempt, AttemptState};
    use fsm_core::ids::{CallId, InstanceId, SessionId};
    use fsm_core::outcome::Outcome;
    use fsm_core::retry::Budget;
    use fsm_core::time::Timestamp;
    use uuid::Uuid;

    use super::super::request::{Report, What};
    use super::*;

    /// The end of an attempt that began so many microseconds after it was written.
    fn end(key: &str, waited_us: i64) -> Request {
        let attempt = Attempt {
            call: CallId(Uuid::now_v7()),
            number: 1,
            instance: InstanceId(Uuid::now_v7()),
            machine: "payment".into(),
            verb: "paid".into(),
            event: "Paid".into(),
            from: None,
            to: "paid".into(),
            state: AttemptState::Executing,
            held: false,
            created_at: Timestamp::from_micros(1000),
            scheduled_at: Timestamp::from_micros(1000),
            budget: Budget::fresh(None, Timestamp::from_micros(1000)),
            worker: Some(SessionId(Uuid::now_v7())),
            started_at: Some(Timestamp::from_micros(1000 + waited_us)),
            finished_at: None,
            error: None,
            previous: None,
        };
        let report = Report::new(Arc::new(attempt), Outcome::Released);
        Request::new(Whose::new("payment", key), What::Settle(Box::new(report)), None)
    }

    fn waiting(fresh: usize, due: usize) -> Waiting {
        let mut waiting = Waiting::default();
        (0..due).for_each(|n| waiting.put(end(&format!("due-{n}"), 1)));
        (0..fresh).for_each(|n| waiting.put(end(&format!("fresh-{n}"), 0)));
        waiting
    }

    /// How much that is fresh and how much that was due goes next.
    fn next(waiting: &mut Waiting, most: usize, now: Instant) -> (usize, usize) {
        let batch = waiting.pick(most, &mut HashSet::new(), now);
        let due = batch.iter().filter(|request| request.was_due()).count();
        (batch.len() - due, due)
    }

    #[test]
    fn what_was_due_goes_in_the_numbers_of_what_is_fresh() {
        let (mut waiting, now) = (waiting(40, 200), Instant::now());
        assert_eq!(next(&mut waiting, 100, now), (40, 40));
        waiting.put(end("another", 0));
        assert_eq!(next(&mut waiting, 100, now), (1, LEAST));
        assert_eq!(next(&mut waiting, 100, now), (0, LEAST), "more that is fresh is expected");
        assert_eq!(next(&mut waiting, 100, now + RECENT), (0, 100));
    }

    #[test]
    fn what_was_due_never_stands_still() {
        let (mut waiting, now) = (waiting(300, 20), Instant::now());
        assert_eq!(next(&mut waiting, 100, now), (84, 16));
        assert_eq!(next(&mut waiting, 100, now), (96, 4));
    }

    #[test]
    fn no_more_is_claimed_than_goes_soon() {
        let now = Instant::now();
        assert_eq!(waiting(0, 0).wanted(now), AT_A_TIME);
        assert_eq!(waiting(0, LONG + 1).wanted(now), 0);
        let mut busy = waiting(20, 45);
        assert_eq!(next(&mut busy, 100, now), (20, 20));
        assert_eq!(busy.wanted(now), 0, "25 wait, and 20 go with the next commit");
        assert_eq!(next(&mut busy, 100, now), (0, 20));
        assert_eq!(busy.wanted(now), 40);
    }

    #[test]
    fn an_instance_keeps_its_order() {
        let mut waiting = Waiting::default();
        ["one", "one", "two"].into_iter().for_each(|key| waiting.put(end(key, 0)));
        let mut under_way = HashSet::from([Whose::new("payment", "two")]);
        assert_eq!(waiting.pick(100, &mut under_way, Instant::now()).len(), 1);
        assert_eq!(waiting.pick(100, &mut under_way, Instant::now()).len(), 0);
        assert_eq!(waiting.len(), 2);
    }
}
