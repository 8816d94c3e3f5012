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
