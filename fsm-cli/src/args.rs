//! The command line: what can be said, and in which words.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use fsm_core::duration;
use fsm_core::instance::Status;

/// Inspect and operate durable state machines on SQLite and PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "fsm", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 called wrongly, 3 not found, 4 refused, 5 conflict, \
6 the instance is in error, 7 database or schema.")]
pub struct Args {
    /// `postgres://…`, `sqlite://…` or the path of a SQLite file [default: fsm.db]
    #[arg(long, short = 'd', global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL|FILE")]
    pub database: Option<String>,
    /// Hide the values of these JSON fields wherever a payload or a record is shown
    #[arg(long, global = true, env = "FSM_REDACT", value_name = "FIELD,…", value_delimiter = ',')]
    pub redact: Vec<String>,
    /// Answer with one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The machines that were ever started on this database
    Machines,
    /// Instances, the newest first, a page at a time
    Ls(Ls),
    /// One instance: where it stands, what it is about, and all that happened to it
    Show(Show),
    /// Instances in error and instances that are being retried, grouped by verb and error
    Errors(Errors),
    /// What happens next by itself: attempts and timers, the first due first
    Due(Few),
    /// Processes that work
    Workers,
    /// A retry policy as a table of attempts: `fsm simulate 10 5s 1h`, or of a verb: `fsm simulate MACHINE VERB`
    Simulate(Simulate),
    /// A machine as a diagram
    Graph(Graph),
    /// Send an event to an instance
    Send(Send),
    /// Run the newest call again, now and with a fresh budget
    Retry(Acting),
    /// End instances
    Cancel(Acting),
    /// Start no attempt until they are resumed
    Pause(Acting),
    /// Let paused instances go on
    Resume(Acting),
    /// Give up the open or exhausted call: the instance rests in the state it was in
    Skip(Acting),
    /// What may be wrong: settings that weaken a promise, clocks, dead workers, drift; with `--deep` every invariant.
    ///
    /// Ends with code 1 if the database breaks a promise, and with `--strict` also if there is a warning; else with 0.
    Doctor {
        /// Check every invariant, all instances and SQLite's file; reads whole tables
        #[arg(long)]
        deep: bool,
        /// End with code 1 also if there is only a warning
        #[arg(long)]
        strict: bool,
    },
    /// Wait for an instance
    Wait(Wait),
    /// Rates, durations and delays of the newest calls, and what is late
    Stats(Stats),
    /// The tables and how they came to be
    #[command(subcommand)]
    Migrate(Migrate),
    /// All rows of one machine or of all, as lines of JSON
    Export(Export),
    /// Take in what `fsm export` wrote, into a database that has no instances of its machines
    Import(Import),
    /// A script that completes this command in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual page, for `man -l -`
    Man,
}

/// `fsm export`.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// Only this machine
    pub machine: Option<String>,
    /// Into this file instead of the standard output. It must not be there yet, not even as a symbolic link, and only its owner can read it
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also while processes work on the database: what they do meanwhile is not in it
    #[arg(long)]
    pub live: bool,
}

/// `fsm import`.
#[derive(Debug, ClapArgs)]
pub struct Import {
    /// The file, or `-` for the standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

/// `fsm migrate`.
#[derive(Debug, Subcommand)]
pub enum Migrate {
    /// Make the tables, or bring them up to date
    Up,
    /// Which migrations the database has
    Status,
    /// End with code 7 unless the tables are those that this command reads and writes
    Check,
    /// The whole script for an empty database, for those who migrate with tools of their own
    Print {
        /// For this database, else for the kind that `--database` names
        #[arg(long = "for", value_enum, value_name = "KIND")]
        kind: Option<Kind>,
    },
}

/// A kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// SQLite
    Sqlite,
    /// PostgreSQL
    Postgres,
}

/// An act on one instance, or on all that a filter lets through.
#[derive(Debug, ClapArgs)]
pub struct Acting {
    /// The machine
    pub machine: String,
    /// The instance; without it, all that the filter lets through
    pub key: Option<String>,
    /// Which instances.
    #[command(flatten)]
    pub wanted: Wanted,
    /// Say which instances they are, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who, for the history [default: $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Do not ask, however many they are
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// `fsm send`.
#[derive(Debug, ClapArgs)]
pub struct Send {
    /// The machine
    pub machine: String,
    /// The instance; a start event makes it
    pub key: String,
    /// The name of the event's type
    pub event: String,
    /// The event as JSON, or `-` to read it from the standard input
    #[arg(default_value = "null", value_name = "JSON")]
    pub payload: String,
    /// The sender's own id for it: the same id again does nothing
    #[arg(long, value_name = "ID")]
    pub dedup: Option<String>,
    /// Deliver it so much later
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub after: Option<Duration>,
    /// If the instance is busy, refuse instead of waiting in its inbox
    #[arg(long)]
    pub reject_if_busy: bool,
}

/// `fsm stats`.
#[derive(Debug, ClapArgs)]
pub struct Stats {
    /// Only this machine
    pub machine: Option<String>,
    /// Over so long back from now
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration::parse)]
    pub window: Duration,
    /// Look at no more attempts than this, the newest of all machines
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sample: u32,
    /// Look again and again, so long apart
    #[arg(long, short = 'w', value_name = "DURATION", num_args = 0..=1, default_missing_value = "2s", value_parser = duration::parse)]
    pub watch: Option<Duration>,
}

/// `fsm errors`.
#[derive(Debug, ClapArgs)]
pub struct Errors {
    /// Only this machine
    pub machine: Option<String>,
    /// Group every instance, or every rejected event, not only the newest in error and the first to be retried
    #[arg(long)]
    pub all: bool,
    /// Group events instead that were accepted and not taken: they no longer fitted when their turn came, or the receiver refused what a
    /// verb sent
    #[arg(long)]
    pub rejected: bool,
}

/// The first few of all machines, or of one.
#[derive(Debug, ClapArgs)]
pub struct Few {
    /// Only this machine
    pub machine: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// Which instances.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Wanted {
    /// Only those that stand in this state
    #[arg(long)]
    pub state: Option<String>,
    /// Only those of this status: running, completed, error or cancelled
    #[arg(long)]
    pub status: Option<Status>,
    /// Only those in error or being retried whose error contains this text, in whatever case
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Only those whose key begins so, like `2026-*`; in the order of their keys
    #[arg(long = "key", value_name = "PREFIX*", value_parser = prefix)]
    pub key_prefix: Option<String>,
    /// Only those whose open attempt follows one that failed
    #[arg(long)]
    pub retrying: bool,
    /// Only those that have not changed for so long, like `1h30m`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub older: Option<Duration>,
    /// Only those that an operator paused
    #[arg(long)]
    pub paused: bool,
}

impl Wanted {
    /// Whether anything is said.
    pub fn is_some(&self) -> bool {
        self.key_prefix.is_some()
            || self.state.is_some()
            || self.status.is_some()
            || self.error.is_some()
            || self.retrying
            || self.older.is_some()
            || self.paused
    }
}

/// The prefix of `PREFIX*`.
fn prefix(pattern: &str) -> Result<String, String> {
    let prefix = pattern.strip_suffix('*').ok_or("it ends with `*`, like `2026-*`; `fsm show` shows one instance")?;
    Ok(prefix.to_owned())
}

/// `fsm ls`.
#[derive(Debug, ClapArgs)]
pub struct Ls {
    /// Only this machine
    pub machine: Option<String>,
    /// Which of its instances.
    #[command(flatten)]
    pub wanted: Wanted,
    /// The length of the page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// The next page, by what the last one said at its end
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// The one that was created first comes first
    #[arg(long)]
    pub oldest: bool,
    /// Look until the page is full, however many have to be looked at for it
    #[arg(long)]
    pub all: bool,
}

/// `fsm show`.
#[derive(Debug, ClapArgs)]
pub struct Show {
    /// Its machine
    pub machine: String,
    /// Its key
    pub key: String,
    /// End with code 6 if the instance is in error
    #[arg(long)]
    pub exit_status: bool,
    /// Go on telling what happens, until the instance has ended
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Tell attempts that failed alike one by one
    #[arg(long)]
    pub all: bool,
}

/// `fsm wait`.
#[derive(Debug, ClapArgs)]
pub struct Wait {
    /// Its machine
    pub machine: String,
    /// Its key
    pub key: String,
    /// `settled`: nothing executes, is scheduled or waits; `end`: it has ended; or a state
    #[arg(long = "for", default_value = "settled", value_name = "settled|end|STATE")]
    pub what: String,
    /// Give up after so long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
}

/// `fsm simulate`.
#[derive(Debug, ClapArgs)]
pub struct Simulate {
    /// `[RETRIES] MIN [MAX]`, as in `#[retry(10, "5s", "1h")]`, or a machine and its verb
    #[arg(required = true, num_args = 1..=3, value_name = "POLICY")]
    pub words: Vec<String>,
    /// Which attempt succeeds if every one fails for so long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub outage: Option<Duration>,
    /// The largest share of each wait that chance adds to it, like 0.1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub jitter: Option<f64>,
    /// No attempt starts later than this after the first
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub within: Option<Duration>,
    /// At most so many rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rows: u32,
}

/// `fsm graph`.
#[derive(Debug, ClapArgs)]
pub struct Graph {
    /// The machine
    pub machine: String,
    /// The language
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    pub format: Format,
    /// Say how many instances stand in each state, counted among the newest of each status
    #[arg(long)]
    pub counts: bool,
    /// Count all of them, however many there are
    #[arg(long, requires = "counts")]
    pub all: bool,
}

/// The language of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// `stateDiagram-v2`, which many pages render
    Mermaid,
    /// Graphviz
    Dot,
    /// A picture for browsers
    Svg,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1, like 0.1 for a tenth".into()),
    }
}
