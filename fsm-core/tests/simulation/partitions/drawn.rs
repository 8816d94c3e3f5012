//! Draws the steps of a schedule of two partitions: those of each of them, deliveries between them, and moves.

use super::pair::{Pair, PairAct, PairStep};
use crate::draw::Mood;
use crate::machine::EVENTS;
use crate::model::partition::{PARTITIONS, partition_of};
use crate::model::queue::KEYS;
use crate::model::variant::Variant;
use crate::random::Random;
use crate::step::{Act, End, Ending};

/// The kinds of steps that a schedule may contain.
pub struct PairMood {
    random: Random,
    mood: Mood,
    moves: bool,
    /// The answers to writes of the outbox are lost.
    loses_answers: bool,
    gives_up: bool,
    cancels: bool,
}

impl PairMood {
    pub fn new(seed: u64) -> PairMood {
        let mut random = Random::new(!seed);
        let mood = Mood::of_a_partition(seed);
        let (moves, loses_answers, gives_up, cancels) = (random.one_in(3), random.one_in(2), random.one_in(2), random.one_in(2));
        PairMood { random, mood, moves, loses_answers, gives_up, cancels }
    }

    /// Draws the next step.
    pub fn draw(&mut self, pair: &Pair) -> PairStep {
        let partition = self.random.below(PARTITIONS);
        if self.moves && self.random.one_in(if pair.places[partition].is_frozen { 6 } else { 30 }) {
            return self.of_a_move(pair, partition);
        }
        if self.random.one_in(3)
            && let Some(step) = self.of_a_delivery(pair, partition)
        {
            return step;
        }
        let step = self.mood.draw(&pair.worlds[partition]);
        let mut act = step.act;
        // Each request about an instance goes to its partition.
        let key = match &mut act {
            Act::Send { key, .. } | Act::Operate { key, .. } | Act::Prune { key } => Some(*key),
            Act::EndVerb { outcome, .. } => {
                self.add_sends(partition, outcome);
                None
            }
            _ => None,
        };
        let partition = key.map_or(partition, |key| partition_of(KEYS[key]));
        PairStep { partition, process: step.process, act: PairAct::In(act) }
    }

    /// Most verbs send events to the other partition.
    fn add_sends(&mut self, partition: usize, outcome: &mut Ending) {
        let Ending::Success { sends, cancels, .. } = outcome else { return };
        *cancels = self.cancels && self.random.one_in(2);
        let keys: Vec<_> = (0..KEYS.len()).filter(|key| partition_of(KEYS[*key]) != partition).collect();
        let key = self.random.pick(&keys);
        while sends.len() < 4 && !self.random.one_in(3) {
            let event = if self.random.one_in(3) { EVENTS[0] } else { self.random.pick(&EVENTS) };
            let after_s = self.random.one_in(if self.cancels { 2 } else { 5 }).then(|| self.random.pick(&[1, 3]));
            sends.push((key, event, after_s));
        }
    }

    fn of_a_delivery(&mut self, pair: &Pair, partition: usize) -> Option<PairStep> {
        let end = match self.random.below(10) {
            0 => End::Fails,
            1 if self.loses_answers => End::AnswerLost,
            _ => End::Commits,
        };
        let step = |process, act| Some(PairStep { partition, process, act });
        let which = self.random.below(2);
        if !pair.deliveries.is_empty() && self.random.below(4) > 0 {
            let one = &pair.deliveries[self.random.below(pair.deliveries.len())];
            let gives_up = self.gives_up && one.sending.is_some() && self.random.one_in(8);
            return step(one.process, if gives_up { PairAct::GiveUp { which } } else { PairAct::DeliverNext { which, end } });
        }
        let process = self.random.below(pair.worlds[partition].processes.len());
        let world = &pair.worlds[partition];
        let due = world.model.store.due_elsewhere(world.clock(process));
        if due.is_empty() {
            return None;
        }
        step(process, PairAct::ClaimLine { key: self.random.pick(&due), end })
    }

    fn of_a_move(&mut self, pair: &Pair, partition: usize) -> PairStep {
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
        PairStep { partition, process: 0, act }
    }
}
