//! Draws the steps of a schedule of two partitions: those of each of them, deliveries between them, and moves.

use super::pair::{Pair, PairAct, Turn};
use crate::draw::Mood;
use crate::machine::EVENTS;
use crate::model::partition::{PARTITIONS, partition_of};
use crate::model::queue::KEYS;
use crate::model::variant::Variant;
use crate::random::Random;
use crate::step::{Act, End, Ending};
use crate::world::PROCESSES;

/// The kinds of steps that a schedule may contain.
pub struct PairMood {
    random: Random,
    mood: Mood,
    moves: bool,
    /// The answers to writes of the outbox are lost.
    loses_answers: bool,
    gives_up: bool,
    cancels: bool,
    /// The process whose deliveries and commits go on slowly, so that its claims end.
    slow: Option<usize>,
    /// The key of an instance that callers create late, so that it refuses events at first.
    late: Option<usize>,
}

impl PairMood {
    pub fn new(seed: u64) -> PairMood {
        let mut random = Random::new(!seed);
        let mood = Mood::of_a_partition(seed);
        let (moves, loses_answers, gives_up, cancels) = (random.one_in(3), random.one_in(2), random.one_in(2), random.one_in(2));
        let slow = random.one_in(2).then(|| random.below(PROCESSES));
        let late = random.one_in(2).then(|| random.below(KEYS.len()));
        PairMood { random, mood, moves, loses_answers, gives_up, cancels, slow, late }
    }

    /// Draws the next step.
    pub fn draw(&mut self, pair: &Pair) -> Turn {
        let partition = self.random.below(PARTITIONS);
        if self.moves && self.random.one_in(if pair.places[partition].is_frozen { 6 } else { 30 }) {
            return self.of_a_move(pair, partition);
        }
        if self.random.one_in(3)
            && let Some(step) = self.of_a_delivery(pair, partition)
        {
            return step;
        }
        if self.cancels
            && self.random.one_in(2)
            && let Some(step) = self.of_a_claimed_sender(pair)
        {
            return step;
        }
        let step = self.mood.draw(&pair.worlds[partition]);
        let mut act = step.act;
        // Each request about an instance goes to its partition.
        let key = match &mut act {
            Act::Send { key, event, .. } if Some(*key) == self.late && *event == EVENTS[0] && !self.random.one_in(8) => {
                act = Act::Advance { us: 3_000_000 };
                None
            }
            Act::Begin { .. } if !self.cancels && Some(step.process) == self.slow && !self.random.one_in(4) => {
                act = Act::Advance { us: 400_000 };
                None
            }
            Act::Send { key, .. } | Act::Operate { key, .. } | Act::Prune { key } => Some(*key),
            Act::EndVerb { outcome, .. } => {
                self.add_sends(partition, outcome);
                None
            }
            _ => None,
        };
        let partition = key.map_or(partition, |key| partition_of(KEYS[key]));
        Turn { partition, process: step.process, act: PairAct::In(act) }
    }

    /// Most verbs send events to the other partition.
    fn add_sends(&mut self, partition: usize, outcome: &mut Ending) {
        let Ending::Success { sends, cancels, .. } = outcome else { return };
        *cancels = self.cancels && self.random.one_in(2);
        let keys: Vec<_> = (0..KEYS.len()).filter(|key| partition_of(KEYS[*key]) != partition).collect();
        let key = self.random.pick(&keys);
        while sends.len() < 4 && !self.random.one_in(3) {
            let event = if self.random.one_in(3) { EVENTS[0] } else { self.random.pick(&EVENTS) };
            let is_delayed = if self.cancels { !self.random.one_in(4) } else { self.random.one_in(5) };
            let after_s = is_delayed.then(|| self.random.pick(&[1, 1, 3]));
            sends.push((key, event, after_s));
        }
    }

    fn of_a_delivery(&mut self, pair: &Pair, partition: usize) -> Option<Turn> {
        let end = match self.random.below(10) {
            0 => End::Fails,
            1 if self.loses_answers => End::AnswerLost,
            _ => End::Commits,
        };
        let step = |process, act| Some(Turn { partition, process, act });
        let which = self.random.below(2);
        if !pair.deliveries.is_empty() && self.random.below(4) > 0 {
            let one = &pair.deliveries[self.random.below(pair.deliveries.len())];
            if Some(one.process) == self.slow && !self.random.one_in(6) {
                return step(one.process, PairAct::In(Act::Advance { us: 2_000_000 }));
            }
            let gives_up = self.gives_up && one.sending.is_some() && self.random.one_in(4);
            return step(one.process, if gives_up { PairAct::GiveUp { which } } else { PairAct::DeliverNext { which, end } });
        }
        let process = self.random.below(PROCESSES);
        let world = &pair.worlds[partition];
        let due = world.model.store.due_elsewhere(world.clock(process));
        if due.is_empty() {
            return None;
        }
        step(process, PairAct::ClaimLine { key: self.random.pick(&due), end })
    }

    /// The end of a verb of an instance whose events are being delivered: it cancels those that are delayed.
    fn of_a_claimed_sender(&mut self, pair: &Pair) -> Option<Turn> {
        let one = pair.deliveries.get(self.random.below(pair.deliveries.len()))?;
        let senders = one.delivery.line().events.iter().map(|event| event.sender).collect::<Vec<_>>();
        let outcome = Ending::Success { next: None, sends: Vec::new(), cancels: true };
        pair.worlds[one.from].processes.iter().enumerate().find_map(|(process, its)| {
            let mut running = its.running.iter().filter(|running| !running.has_ended);
            let which = running.position(|running| senders.contains(&running.attempt.instance))?;
            let act = PairAct::In(Act::EndVerb { which, outcome: outcome.clone(), own_tx: false });
            Some(Turn { partition: one.from, process, act })
        })
    }

    fn of_a_move(&mut self, pair: &Pair, partition: usize) -> Turn {
        let place = &pair.places[partition];
        let is_broken = matches!(pair.variant, Variant::PartitionEventLostInAMove | Variant::StaleDirectory);
        let act = match self.random.below(if is_broken { 3 } else { 8 }) {
            0 => PairAct::Freeze,
            1 => PairAct::Copy,
            2 => PairAct::Switch,
            3 => PairAct::CancelMove,
            _ if !place.is_frozen => PairAct::Freeze,
            _ if place.copy.is_none() => PairAct::Copy,
            _ => PairAct::Switch,
        };
        Turn { partition, process: 0, act }
    }
}
