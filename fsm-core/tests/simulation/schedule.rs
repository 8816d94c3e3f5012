//! Runs a schedule from its seed, and reduces a failing schedule to the steps that the failure needs.

use std::fmt::Write;

use crate::draw::Mood;
use crate::model::promise::Broken;
use crate::model::variant::Variant;
use crate::rest::bring_to_rest;
use crate::step::Step;
use crate::world::World;

/// A broken promise, with the steps that led to it.
pub struct Failure {
    pub seed: u64,
    pub why: Broken,
    pub steps: Vec<Step>,
}

/// Draws and runs the schedule of a seed.
pub fn run(variant: Variant, seed: u64) -> Result<(), Failure> {
    let (mut world, mut mood, mut steps) = (World::new(variant), Mood::new(seed), Vec::new());
    for _ in 0..mood.steps() {
        let step = mood.draw(&world);
        steps.push(step.clone());
        if let Err(why) = world.step(&step) {
            return Err(Failure { seed, why, steps });
        }
    }
    bring_to_rest(&mut world).map_err(|why| Failure { seed, why, steps })
}

/// Runs the steps again and returns the failure.
fn replay(variant: Variant, steps: &[Step]) -> Result<(), Broken> {
    let mut world = World::new(variant);
    for step in steps {
        world.step(step)?;
    }
    bring_to_rest(&mut world)
}

impl Failure {
    /// Returns the same broken promise with fewer steps: it removes ever smaller groups of steps as long as the failure remains.
    pub fn shrunk(mut self, variant: Variant) -> Failure {
        let mut piece = self.steps.len().div_ceil(2);
        loop {
            let mut at = 0;
            let mut has_shrunk = false;
            while at < self.steps.len() {
                let end = (at + piece).min(self.steps.len());
                let fewer = [&self.steps[..at], &self.steps[end..]].concat();
                match replay(variant, &fewer) {
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
