//! Moving a partition to another PostgreSQL database.

use fsm_core::time::Timestamp;
pub use fsm_store::partition_move::Step;
use fsm_store::partition_move::{self, PartitionMove};
use fsm_store::settings::Settings;

use super::opening::{Opening, Source, clock_of};
use super::partitions::{ListedPartition, is_postgres, settings};
use crate::error::Error;

/// A move of a partition. It begins with the first step and can be continued by another process after any of them.
pub struct Move {
    moving: PartitionMove,
    now: Timestamp,
}

/// Begins or continues the move of partition `number` to the database with the URL `to`. `None` if it is there already.
///
/// Returns an `is_input` error if the database or the target is not PostgreSQL, and an `is_database` error if the partition does not exist, or
/// is being moved by another process or to another database.
pub async fn begin(opening: &Opening, number: u32, to: &str) -> Result<Option<Move>, Error> {
    let directory = directory(opening)?;
    if !is_postgres(to) {
        return Err(Error::input("partitions are schemas of PostgreSQL, and the new place is not `postgres://…`"));
    }
    let store = fsm_store::open::Store::open(directory.clone()).await?;
    let clock = clock_of(&store, opening.held_at).await;
    store.close().await;
    let now = clock?.now();
    Ok(PartitionMove::begin(&directory, number, to).await?.map(|moving| Move { moving, now }))
}

/// Cancels the move of a partition that has not reached its last step: the old place is used again. Returns the partition.
///
/// Returns an `is_database` error if it is not being moved, or if another process moves it now.
pub async fn cancel(opening: &Opening, number: u32) -> Result<ListedPartition, Error> {
    Ok(partition_move::cancel(&directory(opening)?, number).await?.into())
}

impl Move {
    /// Moves the partition also if the clocks of the two servers differ by more than a quarter of the shortest lease.
    pub fn ignore_clocks(self) -> Move {
        Move { moving: self.moving.ignore_clocks(), ..self }
    }

    /// The partition at its old place.
    pub fn from(&self) -> ListedPartition {
        self.moving.from().clone().into()
    }

    /// The schema at the old place that keeps the rows from [`Step::Freeze`] on.
    pub fn old_schema(&self) -> String {
        partition_move::frozen(self.moving.from())
    }

    /// Takes one of the steps [`Step::ALL`], in their order. [`Step::Copy`] returns the number of rows.
    ///
    /// Returns an `is_database` error if a place does not fit or cannot be reached, if the clocks of the servers differ too much, or if
    /// transactions hold the tables for too long. The move can be continued or cancelled then.
    pub async fn step(&mut self, step: Step) -> Result<u64, Error> {
        Ok(self.moving.step(step, self.now).await?)
    }
}

fn directory(opening: &Opening) -> Result<Settings, Error> {
    match &opening.from {
        Source::Url(url) if is_postgres(url) => Ok(settings(url, false)),
        Source::Url(_) => Err(Error::input("only a PostgreSQL database has partitions")),
        Source::EngineAccess(_) => {
            Err(Error::input("a partition is moved from outside of the programs that use it: `fsm partitions move`"))
        }
    }
}
