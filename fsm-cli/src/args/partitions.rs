//! The arguments of `fsm partitions`.

use clap::{Args as ClapArgs, Subcommand};
use fsm_core::partition::MOST_PARTITIONS;

/// `fsm partitions`.
#[derive(Debug, Subcommand)]
pub enum Partitions {
    /// Create partitions in a database without tables. Their number does not change later. Can be repeated after a failure
    Init(Init),
    /// List the partitions with their schemas and databases
    List,
    /// Check that each partition is the one that the directory lists, that its tables are up to date, and that each key belongs to it.
    ///
    /// Reads the keys of all instances. The exit code is 1 if a partition has a problem or cannot be reached.
    Check,
    /// Move a partition to another PostgreSQL database while programs work on it.
    ///
    /// While its rows are copied the partition cannot be used: programs wait for as long as their patience, and then go on at the new place by
    /// themselves. A move that was interrupted is continued by the same command, or cancelled.
    #[cfg(feature = "postgres")]
    Move(Move),
}

/// `fsm partitions init`.
#[derive(Debug, ClapArgs)]
pub struct Init {
    /// The number of partitions
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PARTITIONS)))]
    pub number: u32,
    /// The database of a partition, `postgres://…`; several take turns. The directory stores it [default: the database of the directory]
    #[arg(long = "url", value_name = "URL")]
    pub urls: Vec<String>,
}

/// `fsm partitions move`.
#[cfg(feature = "postgres")]
#[derive(Debug, ClapArgs)]
pub struct Move {
    /// The number of the partition
    #[arg(value_name = "N")]
    pub number: u32,
    /// The new database, `postgres://…`. The directory stores it
    #[arg(long, value_name = "URL", required_unless_present = "cancel")]
    pub to: Option<String>,
    /// Move it also if the clocks of the two servers differ by more than a quarter of the shortest lease. Calls that run may then count as lost, or due
    /// work waits for the difference
    #[arg(long, requires = "to")]
    pub ignore_clocks: bool,
    /// Cancel a move that was interrupted before all rows were copied: the partition is used at its old place again
    #[arg(long, conflicts_with = "to")]
    pub cancel: bool,
}
