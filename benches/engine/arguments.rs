//! What is measured, on which databases, and for how long.

use std::path::PathBuf;
use std::time::Duration;

use crate::database::Database;

/// One kind of figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The engine beside the lean limit and its own statements, in turn.
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
    /// Only where it is named: it takes long.
    Lasting,
    /// With an old snapshot open for ten minutes; only where it is named.
    Snapshot,
}

const PARTS: [(&str, Part); 12] = [
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
    ("lasting", Part::Lasting),
    ("snapshot", Part::Snapshot),
];

/// From one turn to the next; a prime, so that every instance has its turn.
const STEP: usize = 7919;

/// Instances, numbered as they were made, and the order in which they have their turns.
#[derive(Debug, Clone, Copy)]
pub struct Instances {
    pub count: usize,
    /// Those that have their turns together were made apart, and lie apart in the database.
    pub are_scattered: bool,
}

impl Instances {
    /// So many, in the order in which they were made.
    pub fn as_made(count: usize) -> Instances {
        Instances { count, are_scattered: false }
    }

    /// Whose turn is the `n`th. Each has one before any has a second one.
    pub fn nth(self, n: usize) -> usize {
        if self.are_scattered { n % self.count * STEP % self.count } else { n % self.count }
    }
}

/// What the command line says.
pub struct Arguments {
    pub databases: Vec<Database>,
    parts: Vec<Part>,
    pub callers: Vec<usize>,
    pub batches: Vec<usize>,
    pub each: Duration,
    pub instances: Instances,
    pub is_json: bool,
    pub is_verbose: bool,
    /// How many instances wait to be retried.
    pub waiting: usize,
    /// How many transitions a lasting load makes.
    pub transitions: u64,
    /// Where pictures are drawn.
    pub charts: Option<PathBuf>,
    pub memory_of: Option<String>,
    /// What a child is told: the database, and what to do with it.
    pub work_on: Vec<String>,
    /// As a person types it.
    pub command: String,
}

impl Arguments {
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        // Cargo tells every bench that it is one.
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

    /// Whether this is to be measured; everything but what takes long is when nothing is named.
    pub fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.names(part)
    }

    /// Whether this was asked for by name.
    pub fn names(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}
