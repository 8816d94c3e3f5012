//! Runs a schedule from its seed, and reduces a failing schedule to the steps that the failure needs.

use std::fmt::{Display, Write};

use crate::draw::Mood;
use crate::model::promise::Broken;
use crate::model::variant::Variant;
use crate::rest::bring_to_rest;
use crate::step::Step;
use crate::world::World;

/// A world that schedules run on.
pub trait Scheduled: Sized {
    /// One step of a schedule.
    type Step: Clone + Display + Send;
    /// The source of the steps.
    type Mood;

    /// The world at the beginning, and the source of the steps of this seed.
    fn begin(variant: Variant, seed: u64) -> (Self, Self::Mood);

    /// The number of steps before the world is brought to rest.
    fn steps(mood: &Self::Mood) -> usize;

    /// Draws the next step.
    fn draw(&self, mood: &mut Self::Mood) -> Self::Step;

    /// Applies a step. An error is a promise that it broke.
    fn take(&mut self, step: &Self::Step) -> Result<(), Broken>;

    /// Ends all faults and lets time pass until nothing is left to do.
    fn rest(&mut self) -> Result<(), Broken>;
}

impl Scheduled for World {
    type Step = Step;
    type Mood = Mood;

    fn begin(variant: Variant, seed: u64) -> (World, Mood) {
        (World::new(variant), Mood::new(seed))
    }

    fn steps(mood: &Mood) -> usize {
        mood.steps()
    }

    fn draw(&self, mood: &mut Mood) -> Step {
        mood.draw(self)
    }

    fn take(&mut self, step: &Step) -> Result<(), Broken> {
        self.step(step)
    }

    fn rest(&mut self) -> Result<(), Broken> {
        bring_to_rest(self)
    }
}

/// A broken promise, with the steps that led to it.
pub struct Failure<W: Scheduled> {
    pub seed: u64,
    pub why: Broken,
    pub steps: Vec<W::Step>,
}

/// Draws and runs the schedule of a seed.
pub fn run<W: Scheduled>(variant: Variant, seed: u64) -> Result<(), Failure<W>> {
    let ((mut world, mut mood), mut steps) = (W::begin(variant, seed), Vec::new());
    for _ in 0..W::steps(&mood) {
        let step = world.draw(&mut mood);
        steps.push(step.clone());
        if let Err(why) = world.take(&step) {
            return Err(Failure { seed, why, steps });
        }
    }
    world.rest().map_err(|why| Failure { seed, why, steps })
}

impl<W: Scheduled> Failure<W> {
    /// Returns the same broken promise with fewer steps: it removes ever smaller groups of steps as long as the failure remains.
    pub fn shrunk(mut self, variant: Variant) -> Failure<W> {
        let mut piece = self.steps.len().div_ceil(2);
        loop {
            let mut at = 0;
            let mut has_shrunk = false;
            while at < self.steps.len() {
                let end = (at + piece).min(self.steps.len());
                let fewer = [&self.steps[..at], &self.steps[end..]].concat();
                match self.replay(variant, &fewer) {
                    Err(why) if why.promise == self.why.promise => (self.why, self.steps, has_shrunk) = (why, fewer, true),
                    _ => at = end,
                }
            }
            if piece == 1 && !has_shrunk {
                return self;
            }
            piece = piece.div_ceil(2);
        }
    }

    /// Runs the steps again and returns the failure.
    fn replay(&self, variant: Variant, steps: &[W::Step]) -> Result<(), Broken> {
        let (mut world, _) = W::begin(variant, self.seed);
        for step in steps {
            world.take(step)?;
        }
        world.rest()
    }

    /// Formats the seed, the promise and the steps.
    pub fn told(&self) -> String {
        let mut told = format!("seed {}: {}\n", self.seed, self.why);
        for (n, step) in self.steps.iter().enumerate() {
            writeln!(told, "{:4}  {step}", n + 1).expect("a string takes all that is written");
        }
        told.push_str("      then all processes live and time passes until nothing is left to do");
        told
    }
}
