//! The command line: the measurements, the databases and the durations.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};

use crate::database::Database;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measurement {
    /// The engine, the lean limit and the engine's own statements alone, alternately
    Compare,
    /// Transitions of many instances under load
    Transitions,
    /// One send at a time
    Idle,
    /// Instances that go on by themselves
    Chain,
    /// Retries that become due together
    Retries,
    /// Sends alone
    Enqueue,
    /// Many sends in one call
    SendMany,
    /// Resident memory
    Memory,
    /// The lean limit
    Limit,
    /// Sends from one process to another
    Across,
    /// Several processes
    Processes,
    /// Many senders to one instance with a small inbox
    FanIn,
    /// Cancellations while a call waits for its retry
    Interrupt,
    /// A parent of 10,000 children
    Children,
    /// Transitions on a database with partitions, beside one without; only on PostgreSQL, and only if it is named
    Partitions,
    /// Starts under limits, in several processes and from a backlog; it takes minutes, so it runs only if it is named
    RateLimit,
    /// A load over many transitions; it takes long, so it runs only if it is named
    Lasting,
    /// A load while an old snapshot stays open for ten minutes; it runs only if it is named
    Snapshot,
}

/// A database on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DatabaseName {
    Postgres,
    /// Both forms of SQLite
    Sqlite,
    SqliteFull,
    SqliteNormal,
}

/// The distance between two consecutive instances in scattered order. It is a prime, so that every instance is reached.
const STRIDE: usize = 7919;

/// The instances that a load uses, numbered in the order of their creation, and the order in which it uses them.
#[derive(Debug, Clone, Copy)]
pub struct Instances {
    pub count: usize,
    /// If true, instances that are used together were created at different times and lie on different pages of the database.
    pub are_scattered: bool,
}

impl Instances {
    /// Returns `count` instances that are used in the order of their creation.
    pub fn as_made(count: usize) -> Instances {
        Instances { count, are_scattered: false }
    }

    /// Returns the number of the instance that is used at step `n`. All instances are used once before any is used again.
    pub fn nth(self, n: usize) -> usize {
        if self.are_scattered { n % self.count * STRIDE % self.count } else { n % self.count }
    }
}

/// A word that selects a measurement or a database.
#[derive(Debug, Clone, Copy)]
enum Selected {
    Measurement(Measurement),
    Database(DatabaseName),
}

impl ValueEnum for Selected {
    fn value_variants<'a>() -> &'a [Selected] {
        static ALL: LazyLock<Vec<Selected>> = LazyLock::new(|| {
            let measurements = Measurement::value_variants().iter().map(|measurement| Selected::Measurement(*measurement));
            measurements.chain(DatabaseName::value_variants().iter().map(|name| Selected::Database(*name))).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Selected::Measurement(measurement) => measurement.to_possible_value(),
            Selected::Database(name) => name.to_possible_value(),
        }
    }
}

/// Measures the speed of the engine. Without names, it measures everything except `partitions`, `rate-limit`, `lasting` and `snapshot`, on all databases.
#[derive(Parser)]
#[command(name = "cargo xtask bench", max_term_width = 120)]
pub struct Arguments {
    /// Measurements and databases
    #[arg(value_name = "NAME")]
    selected: Vec<Selected>,
    /// The numbers of concurrent callers
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 16, 256, 2000, 4096])]
    pub callers: Vec<usize>,
    /// The numbers of requests in a batch of the lean limit
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 100, 250])]
    pub batches: Vec<usize>,
    /// The seconds of each measurement
    #[arg(long = "seconds", value_name = "N", default_value = "2", value_parser = seconds)]
    pub each: Duration,
    /// The number of instances
    #[arg(long = "instances", value_name = "N", default_value_t = 20_000, value_parser = instances)]
    count: usize,
    /// Uses instances together that were created at different times
    #[arg(long = "scattered")]
    are_scattered: bool,
    /// Prints JSON
    #[arg(long = "json")]
    pub is_json: bool,
    /// Prints the log
    #[arg(long = "verbose")]
    pub is_verbose: bool,
    /// The number of instances that wait for a retry
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub waiting: usize,
    /// The number of calls that go through a limit
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub calls: u64,
    /// The number of transitions of a lasting load
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub transitions: u64,
    /// The folder for charts
    #[arg(long, value_name = "FOLDER")]
    pub charts: Option<PathBuf>,
    /// The URL of the database of a child process that measures its memory
    #[arg(long, hide = true)]
    pub memory_of: Option<String>,
    /// The arguments of a child process: the URL of the database and its task
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    pub work_on: Vec<String>,
    /// Cargo passes this to every benchmark
    #[arg(long = "bench", hide = true)]
    _is_bench: bool,
}

impl Arguments {
    /// Parses the arguments of this process. If they are wrong, prints why and ends the process with the code 1.
    pub fn of_this_process() -> Arguments {
        Arguments::try_parse().unwrap_or_else(|error| {
            // The exit code counts; the answer may be lost with its terminal.
            let _ = error.print();
            std::process::exit(i32::from(error.use_stderr()))
        })
    }

    /// Returns the command as a person types it.
    pub fn command(&self) -> String {
        let words = std::env::args().skip(1).filter(|word| word != "--bench");
        std::iter::once("cargo xtask bench".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    pub fn instances(&self) -> Instances {
        Instances { count: self.count, are_scattered: self.are_scattered }
    }

    /// Returns the databases that were named, or all of them.
    pub fn databases(&self) -> Vec<Database> {
        let named: Vec<Database> = self
            .selected
            .iter()
            .flat_map(|selected| match selected {
                Selected::Database(DatabaseName::Postgres) => vec![Database::Postgres],
                Selected::Database(DatabaseName::Sqlite) => vec![Database::SqliteFull, Database::SqliteNormal],
                Selected::Database(DatabaseName::SqliteFull) => vec![Database::SqliteFull],
                Selected::Database(DatabaseName::SqliteNormal) => vec![Database::SqliteNormal],
                Selected::Measurement(_) => Vec::new(),
            })
            .collect();
        if named.is_empty() { vec![Database::Postgres, Database::SqliteFull, Database::SqliteNormal] } else { named }
    }

    /// True if the measurement is to be made: it was named, or none was named.
    pub fn has(&self, measurement: Measurement) -> bool {
        self.names(measurement) || !self.selected.iter().any(|selected| matches!(selected, Selected::Measurement(_)))
    }

    /// True if the measurement was named.
    pub fn names(&self, measurement: Measurement) -> bool {
        self.selected.iter().any(|selected| matches!(selected, Selected::Measurement(named) if *named == measurement))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn instances(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if count.is_multiple_of(STRIDE) { Err(format!("it must be more than 0, and no multiple of {STRIDE}")) } else { Ok(count) }
}
