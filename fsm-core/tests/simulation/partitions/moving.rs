//! Moves of a partition to another place: the schema is renamed, the rows are copied, and the directory names the new place. Each of these is a step
//! of its own, so that the mover may die before any of them. Somebody else goes on with the move then, or cancels it.

use super::pair::{Pair, PairAct};
use crate::model::promise::Broken;
use crate::model::variant::Variant;
use crate::step::{Act, Step};

fn database(act: Act) -> Step {
    Step { process: 0, act }
}

impl Pair {
    /// Takes a step of a move of partition `x`.
    pub fn moves(&mut self, x: usize, act: &PairAct) -> Result<(), Broken> {
        let (world, place) = (&mut self.worlds[x], &mut self.places[x]);
        let may_copy = place.is_frozen || self.variant == Variant::PartitionEventLostInAMove;
        match act {
            // Waits for the commits that have begun, or ends them.
            PairAct::Freeze if world.is_up && !place.is_frozen && self.variant != Variant::StaleDirectory => {
                place.is_frozen = true;
                world.apply(&database(Act::DatabaseDown))
            }
            PairAct::Copy if may_copy => {
                place.copy = Some(world.model.store.clone());
                Ok(())
            }
            PairAct::Switch if place.is_frozen => {
                let Some(copy) = place.copy.take() else { return Ok(()) };
                world.model.store = copy;
                world.model.is_dirty = true;
                place.version += 1;
                place.is_frozen = false;
                world.apply(&database(Act::DatabaseUp))
            }
            // All rows are at the new place at this moment, and the processes do not know of it.
            PairAct::Switch if self.variant == Variant::StaleDirectory && world.is_up && place.left.is_none() => {
                place.left = Some(world.model.store.clone());
                place.version += 1;
                Ok(())
            }
            PairAct::CancelMove if place.is_frozen => {
                (place.is_frozen, place.copy) = (false, None);
                world.apply(&database(Act::DatabaseUp))
            }
            _ => Ok(()),
        }
    }

    /// Ends a move that was begun.
    pub fn end_move(&mut self, x: usize) -> Result<(), Broken> {
        let act = if self.places[x].copy.is_some() { PairAct::Switch } else { PairAct::CancelMove };
        self.moves(x, &act)
    }

    /// True if the process has read the directory since it was changed last.
    pub fn knows_the_place(&self, x: usize, p: usize) -> bool {
        self.places[x].known[p] == self.places[x].version
    }

    /// The process reads the directory. Its commits in flight at the last place have failed.
    pub fn read_directory(&mut self, x: usize, p: usize) {
        if self.knows_the_place(x, p) {
            return;
        }
        self.places[x].known[p] = self.places[x].version;
        for commit in std::mem::take(&mut self.worlds[x].processes[p].commits_in_flight) {
            self.worlds[x].put_back(p, commit.batch);
        }
    }

    /// Exchanges the rows of the partition and those at its last place.
    pub fn change_places(&mut self, x: usize) {
        if let Some(left) = &mut self.places[x].left {
            std::mem::swap(left, &mut self.worlds[x].model.store);
        }
    }
}
