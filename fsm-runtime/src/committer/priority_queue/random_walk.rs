//! Random operations on the queue, with fixed seeds: lanes take and carry out batches, other transactions lock instances, callers give up,
//! and time passes. After each operation no instance is in flight twice. At the end every request was carried out, in the order of its
//! instance, or its caller had given up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fsm_core::commit::request::RequestKind;
use uuid::Uuid;

use super::tests::{end, locked, numbers, reporting, send};
use super::*;
use crate::committer::ticket::Ticket;

const SEEDS: u64 = 300;
const OPERATIONS: usize = 400;
const KEYS: [&str; 4] = ["one", "two", "three", "four"];
/// The sizes of a batch.
const MOST: [usize; 3] = [1, 3, 40];

/// SplitMix64: a generator with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn milliseconds(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.below(limit) as u64)
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.below(KEYS.len())]
    }
}

/// A request that was put into the queue and is not answered.
struct Open {
    /// Its place among the requests of its instance; `None` if it has no fixed place, because it concerns several or waits for a time.
    place: Option<(&'static str, usize)>,
    ticket: Option<Arc<Ticket>>,
}

struct Walk {
    random: Random,
    now: Instant,
    queue: PriorityQueue,
    lanes: Vec<Vec<Request>>,
    apart: Vec<Request>,
    locked: BTreeSet<&'static str>,
    open: HashMap<Uuid, Open>,
    given_up: usize,
    puts: usize,
    /// The last place that was carried out, for each instance.
    carried_out: BTreeMap<&'static str, usize>,
}

fn id(request: &Request) -> Uuid {
    match &request.kind {
        RequestKind::Send(send) => send.id.0,
        RequestKind::Complete(report) => report.attempt.call.0,
        _ => unreachable!("the walk puts only sends and reports"),
    }
}

fn keys(request: &Request) -> BTreeSet<&'static str> {
    let touches = request.touches();
    KEYS.into_iter().filter(|key| touches.iter().any(|touched| &*touched.key == *key)).collect()
}

impl Walk {
    fn new(seed: u64) -> Walk {
        Walk {
            random: Random(seed),
            now: Instant::now(),
            queue: PriorityQueue::default(),
            lanes: Vec::new(),
            apart: Vec::new(),
            locked: BTreeSet::new(),
            open: HashMap::new(),
            given_up: 0,
            puts: 0,
            carried_out: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..=3 => self.put(),
            4 | 5 => self.pick(),
            6 | 7 => self.end_lane(),
            8 => self.end_apart(),
            9 => {
                let key = self.random.key();
                if !self.locked.remove(key) {
                    self.locked.insert(key);
                }
            }
            10 => self.give_up(),
            _ => {
                let time = self.random.milliseconds(200);
                self.pass(time);
            }
        }
    }

    fn put(&mut self) {
        let key = self.random.key();
        let (request, waits, is_alone) = match self.random.below(8) {
            0 => (reporting(key, &[self.random.key(), self.random.key()]), false, false),
            1 => (end(key, 0), true, false),
            2 => (end(key, 0), false, true),
            3 | 4 => (end(key, 1), false, false),
            5 => (end(key, 0), false, false),
            _ => (send(key), false, false),
        };
        let request = if is_alone { request.alone() } else { request };
        self.puts += 1;
        let place = (!waits && keys(&request).len() == 1).then_some((key, self.puts));
        self.open.insert(id(&request), Open { place, ticket: request.ticket() });
        match waits {
            true => self.queue.put_later(request, self.now + self.random.milliseconds(300)),
            false => self.queue.put(request),
        }
    }

    fn pick(&mut self) {
        let (most, ready) = (MOST[self.random.below(MOST.len())], self.queue.ready());
        let batch = self.queue.pick(most, self.now);
        assert!(batch.len() <= most, "a batch of {} is larger than {most}", batch.len());
        assert_eq!(batch.is_empty(), ready == 0, "{ready} requests can be taken, and {} were", batch.len());
        self.lanes.push(batch);
        let mut in_flight = BTreeSet::new();
        for key in self.lanes.iter().flatten().chain(&self.apart).flat_map(keys) {
            assert!(in_flight.insert(key), "two requests for `{key}` are in flight");
        }
    }

    /// The commit of a batch ends. If one of its instances is locked, its requests are tried one by one, as by `Engine::retry_locked`.
    fn end_lane(&mut self) {
        if self.lanes.is_empty() {
            return;
        }
        let lane = self.random.below(self.lanes.len());
        let batch = self.lanes.swap_remove(lane);
        let numbers = numbers(&batch);
        if batch.iter().flat_map(keys).any(|key| self.locked.contains(key)) {
            self.queue.set_apart(numbers.iter().copied());
            self.apart.extend(batch);
        } else {
            batch.iter().for_each(|request| self.carried_out(request));
        }
        self.queue.leave(&numbers);
    }

    fn end_apart(&mut self) {
        if self.apart.is_empty() {
            return;
        }
        let one = self.random.below(self.apart.len());
        let request = self.apart.swap_remove(one);
        let (number, id) = (request.number, id(&request));
        let meets: Vec<_> = keys(&request).intersection(&self.locked).map(|key| InstanceKey::new("payment", key)).collect();
        if meets.is_empty() {
            self.carried_out(&request);
        } else if self.queue.put_back(request, &meets, &locked(), self.now).is_some() {
            self.answered(id);
        }
        self.queue.leave_apart(number);
    }

    fn carried_out(&mut self, request: &Request) {
        let Some(open) = self.open.remove(&id(request)) else {
            panic!("{:?} was carried out twice, or after it was answered", request.target)
        };
        if let Some((key, place)) = open.place {
            let before = self.carried_out.insert(key, place);
            assert!(before < Some(place), "`{key}`: request {place} was carried out after {before:?}");
        }
    }

    /// A request that met a lock is answered only if its caller has given up.
    fn answered(&mut self, id: Uuid) {
        assert!(self.has_given_up(id), "a request was answered with the error of a lock, and its caller waits");
        self.open.remove(&id);
    }

    fn has_given_up(&self, id: Uuid) -> bool {
        self.open.get(&id).and_then(|open| open.ticket.as_ref()).is_some_and(|ticket| !ticket.met_lock(&locked()))
    }

    fn give_up(&mut self) {
        let tickets: BTreeMap<_, _> = self.open.iter().filter_map(|(id, open)| Some((*id, open.ticket.as_ref()?))).collect();
        if let Some(nth) = self.random.below(usize::MAX).checked_rem(tickets.len()) {
            // A call id begins with its time, so this is the order of arrival.
            tickets.into_values().nth(nth).expect("there are so many").give_up(Duration::from_secs(10));
            self.given_up += 1;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.queue.wake(self.now);
        assert!(self.queue.next_wake().is_none_or(|next| next > self.now), "a backoff is over, and its requests still wait");
    }

    /// Nothing is locked any more, and all lanes work until nothing is left.
    fn bring_to_rest(&mut self) {
        self.locked.clear();
        let mut rounds = 0;
        while !self.queue.is_idle() {
            rounds += 1;
            assert!(rounds <= 10 * OPERATIONS, "{} requests are never taken", self.open.len());
            self.pass(Duration::from_secs(2));
            self.pick();
            while !self.lanes.is_empty() {
                self.end_lane();
            }
            while !self.apart.is_empty() {
                self.end_apart();
            }
        }
        assert!(self.queue.is_empty());
        let left = self.open.keys().filter(|id| !self.has_given_up(**id)).count();
        assert_eq!(left, 0, "requests were neither carried out nor given up");
    }
}

#[test]
fn every_request_is_carried_out_once_and_in_the_order_of_its_instance() {
    let (mut puts, mut given_up) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut walk = Walk::new(seed);
        (0..OPERATIONS).for_each(|_| walk.step());
        walk.bring_to_rest();
        (puts, given_up) = (puts + walk.puts, given_up + walk.given_up);
    }
    println!("{SEEDS} walks: {puts} requests, and {given_up} of their callers gave up");
    assert!(puts > 30_000 && given_up > 1_000, "the walks do less than they did");
}
