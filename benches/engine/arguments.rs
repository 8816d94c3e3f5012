//! The command line: the measurements, the databases and the durations.

use std::path::PathBuf;
use std::time::Duration;

use crate::database::Database;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The engine, the lean limit and the engine's own statements alone, alternately.
    Compare,
    Transitions,
    Idle,
    Chain,
    Retries,
    Enqueue,
    Memory,
    Limit,
    Across,
    Processes,
    /// Many senders to one instance with a small inbox.
    Outbox,
    /// A load over many transitions. It takes long, so it runs only if it is named.
    Lasting,
    /// A load while an old snapshot stays open for ten minutes. It runs only if it is named.
    Snapshot,
}

const PARTS: [(&str, Part); 13] = [
    ("compare", Part::Compare),
    ("transitions", Part::Transitions),
    ("idle", Part::Idle),
    ("chain", Part::Chain),
    ("retries", Part::Retries),
    ("enqueue", Part::Enqueue),
    ("memory", Part::Memory),
    ("limit", Part::Limit),
    ("across", Part::Across),
    ("processes", Part::Processes),
    ("outbox", Part::Outbox),
    ("lasting", Part::Lasting),
    ("snapshot", Part::Snapshot),
];

/// The distance between two consecutive instances in scattered order. It is a prime, so that every instance is reached.
const STEP: usize = 7919;

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
        if self.are_scattered { n % self.count * STEP % self.count } else { n % self.count }
    }
}

/// The command line.
pub struct Arguments {
    pub databases: Vec<Database>,
    parts: Vec<Part>,
    pub callers: Vec<usize>,
    pub batches: Vec<usize>,
    pub each: Duration,
    pub instances: Instances,
    pub is_json: bool,
    pub is_verbose: bool,
    /// The number of instances that wait for a retry.
    pub waiting: usize,
    /// The number of transitions of a lasting load.
    pub transitions: u64,
    /// The folder for charts.
    pub charts: Option<PathBuf>,
    pub memory_of: Option<String>,
    /// The arguments of a child process: the URL of the database and its task.
    pub work_on: Vec<String>,
    /// The command as a person types it.
    pub command: String,
}

impl Arguments {
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        // Cargo passes `--bench` to every benchmark.
        let words: Vec<String> = words.filter(|word| word != "--bench").collect();
        let mut arguments = Arguments {
            databases: Vec::new(),
            parts: Vec::new(),
            callers: vec![1, 16, 256, 2000, 4096],
            batches: vec![1, 100, 250],
            each: Duration::from_secs(2),
            instances: Instances::as_made(20_000),
            is_json: false,
            is_verbose: false,
            waiting: 50_000,
            transitions: 1_000_000,
            charts: None,
            memory_of: None,
            work_on: Vec::new(),
            command: format!("cargo xtask bench {}", words.join(" ")).trim_end().to_owned(),
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("`{word}` takes a value"));
            match word.as_str() {
                "postgres" => arguments.databases.push(Database::Postgres),
                "sqlite" => arguments.databases.extend([Database::SqliteFull, Database::SqliteNormal]),
                "sqlite-full" => arguments.databases.push(Database::SqliteFull),
                "sqlite-normal" => arguments.databases.push(Database::SqliteNormal),
                "--seconds" => arguments.each = Duration::from_secs_f64(number(&value()?)?),
                "--instances" => arguments.instances.count = number(&value()?)?,
                "--scattered" => arguments.instances.are_scattered = true,
                "--callers" => arguments.callers = value()?.split(',').map(number).collect::<Result<_, _>>()?,
                "--batches" => arguments.batches = value()?.split(',').map(number).collect::<Result<_, _>>()?,
                "--json" => arguments.is_json = true,
                "--verbose" => arguments.is_verbose = true,
                "--waiting" => arguments.waiting = number(&value()?)?,
                "--transitions" => arguments.transitions = number(&value()?)?,
                "--work-on" => arguments.work_on = std::iter::once(value()?).chain(words.by_ref()).collect(),
                "--charts" => arguments.charts = Some(value()?.into()),
                "--memory-of" => arguments.memory_of = Some(value()?),
                other => {
                    let part = PARTS.iter().find(|(name, _)| *name == other);
                    arguments.parts.push(part.ok_or(format!("`{other}` is neither a database nor something to measure"))?.1);
                }
            }
        }
        if arguments.instances.count.is_multiple_of(STEP) {
            return Err(format!("`--instances` is more than 0, and no multiple of {STEP}"));
        }
        if arguments.databases.is_empty() {
            arguments.databases = vec![Database::Postgres, Database::SqliteFull, Database::SqliteNormal];
        }
        Ok(arguments)
    }

    /// True if the measurement is to be made: it was named, or none was named.
    pub fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.names(part)
    }

    /// True if the measurement was named.
    pub fn names(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}
