//! The arguments of the `fsm` command.

mod graph;
mod limits;
mod partitions;
mod schedules;
mod transfer;
mod wanted;

use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use fsm_core::duration;
use fsm_core::priority::Priority;

pub use wanted::Wanted;

pub use graph::{Format, Graph};
pub use limits::{Limits, SetLimit};
#[cfg(feature = "postgres")]
pub use partitions::Move;
pub use partitions::{Init, Partitions};
pub use schedules::{OnSchedule, OneSchedule, Schedules};
pub use transfer::{Export, Import};

/// Inspect and operate durable state machines on SQLite and PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "fsm", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 called wrongly, 3 not found, 4 refused, 5 conflict, \
6 the instance is in error, 7 database or schema.")]
pub struct Args {
    /// `postgres://…`, `sqlite://…` or the path of a SQLite file [default: fsm.db]
    #[arg(long, short = 'd', global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL|FILE")]
    pub database: Option<String>,
    /// Use only this partition of a database with partitions. Without it, lists are of all partitions, and the key of an instance determines its
    /// partition
    #[arg(long, global = true, value_name = "N")]
    pub partition: Option<u32>,
    /// Hide the values of these JSON fields in all payloads and records
    #[arg(long, global = true, env = "FSM_REDACT", value_name = "FIELD,…", value_delimiter = ',')]
    pub redact: Vec<String>,
    /// Print one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the machines that were ever started on this database
    Machines,
    /// List instances, newest first, page by page
    Ls(Ls),
    /// Show one instance: its state, its present activity and its history
    Show(Show),
    /// List instances in error and instances that are being retried, grouped by verb and error
    Errors(Errors),
    /// List the attempts and timers that are due next, the earliest first
    Due(Few),
    /// List the schedules, or act on one
    Schedules(Schedules),
    /// List the worker processes
    Workers,
    /// List the limits: their settings, what runs under them and what waits; or change one
    Limits {
        /// The act; without one, all limits are listed
        #[command(subcommand)]
        act: Option<Limits>,
    },
    /// Serve the web console: every page of it in a browser, until Ctrl-C
    Console(Console),
    /// Show a retry policy as a table of attempts: `fsm simulate 10 5s 1h`, or the policy of a verb: `fsm simulate MACHINE VERB`
    Simulate(Simulate),
    /// Print a machine as a diagram
    Graph(Graph),
    /// Send an event to an instance
    Send(Send),
    /// Run the newest call again, now and with a full budget
    Retry(Acting),
    /// End instances
    Cancel(Acting),
    /// Pause instances: no further attempt starts until they are resumed
    Pause(Acting),
    /// Resume paused instances
    Resume(Acting),
    /// Give up the open or exhausted call; the instance stays in its state
    Skip(Acting),
    /// Check settings that weaken a guarantee, clocks, dead workers and drift; with `--deep` every invariant.
    ///
    /// The exit code is 1 if the database violates a guarantee, and with `--strict` also if there is a warning; otherwise 0.
    Doctor {
        /// Check every invariant, all instances and the integrity of a SQLite file; reads whole tables
        #[arg(long)]
        deep: bool,
        /// Exit with code 1 also if there is only a warning
        #[arg(long)]
        strict: bool,
    },
    /// Wait for an instance
    Wait(Wait),
    /// Show rates, durations and delays of the newest calls, and overdue attempts
    Stats(Stats),
    /// Show or change the version of the tables
    #[command(subcommand)]
    Migrate(Migrate),
    /// Create, list or check the partitions of a PostgreSQL database
    #[command(subcommand)]
    Partitions(Partitions),
    /// Write all rows of one machine, or of all, as lines of JSON; of a database with partitions, those of all partitions
    Export(Export),
    /// Read the output of `fsm export` into a database that has no instances of its machines.
    ///
    /// In a database with partitions, the key of each instance determines its partition. All rows are in one commit, or in one for each partition,
    /// which follow each other after the last line. If one of those fails, repeat the command: partitions that have their rows are left as they are.
    Import(Import),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`
    Man,
}

/// `fsm migrate`.
#[derive(Debug, Subcommand)]
pub enum Migrate {
    /// Create the tables or migrate them
    Up,
    /// List the migrations and those that the database has
    Status,
    /// Exit with code 7 unless the tables are of the version that this command reads and writes
    Check,
    /// Print the whole script for an empty database, for other migration tools
    Print {
        /// The kind of database; by default the one that `--database` names
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

/// An act on one instance, or on all that match a filter.
#[derive(Debug, ClapArgs)]
pub struct Acting {
    /// The machine
    pub machine: String,
    /// The instance; without it, all instances that match the filter
    pub key: Option<String>,
    /// The filter.
    #[command(flatten)]
    pub wanted: Wanted,
    /// List the instances without changing them
    #[arg(long)]
    pub dry_run: bool,
    /// The reason, for the history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// The operator's name, for the history [default: $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// `fsm console`.
#[derive(Debug, ClapArgs)]
pub struct Console {
    /// The address to listen on; one that other machines reach needs a user and a password
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    pub listen: std::net::SocketAddr,
    /// Show no button and refuse each act
    #[arg(long)]
    pub read_only: bool,
    /// Show neither payloads nor records
    #[arg(long)]
    pub hide_payloads: bool,
    /// The name that the browser has to give, and the actor in each history
    #[arg(long, value_name = "NAME", requires = "password")]
    pub user: Option<String>,
    /// The password that the browser has to give
    #[arg(long, env = "FSM_CONSOLE_PASSWORD", hide_env_values = true, requires = "user")]
    pub password: Option<String>,
}

/// `fsm send`.
#[derive(Debug, ClapArgs)]
pub struct Send {
    /// The machine
    pub machine: String,
    /// The instance; a start event creates it
    pub key: String,
    /// The name of the event type
    pub event: String,
    /// The event as JSON, or `-` to read it from the standard input
    #[arg(default_value = "null", value_name = "JSON")]
    pub payload: String,
    /// The sender's own id for this event; a second send with the same id does nothing
    #[arg(long, value_name = "ID")]
    pub dedup: Option<String>,
    /// The priority of the call: high, normal or low
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::Normal)]
    pub priority: Priority,
    /// Deliver the event after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub after: Option<Duration>,
    /// Refuse the event if the instance is busy, instead of adding it to the inbox
    #[arg(long)]
    pub reject_if_busy: bool,
}

/// `fsm stats`.
#[derive(Debug, ClapArgs)]
pub struct Stats {
    /// Only this machine
    pub machine: Option<String>,
    /// The period before now that is examined
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = duration::parse)]
    pub window: Duration,
    /// The maximum number of attempts that are examined, the newest of all machines
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sample: u32,
    /// Repeat at this interval
    #[arg(long, short = 'w', value_name = "DURATION", num_args = 0..=1, default_missing_value = "2s", value_parser = duration::parse)]
    pub watch: Option<Duration>,
}

/// `fsm errors`.
#[derive(Debug, ClapArgs)]
pub struct Errors {
    /// Only this machine
    pub machine: Option<String>,
    /// Group all instances, or all rejected events, instead of a limited number
    #[arg(long)]
    pub all: bool,
    /// Group rejected events instead: accepted events that no longer fitted when they left the inbox, and events of verbs that the receiver
    /// refused
    #[arg(long)]
    pub rejected: bool,
}

/// The arguments of a list with a limit.
#[derive(Debug, ClapArgs)]
pub struct Few {
    /// Only this machine
    pub machine: Option<String>,
    /// The maximum number of lines
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// `fsm ls`.
#[derive(Debug, ClapArgs)]
pub struct Ls {
    /// Only this machine
    pub machine: Option<String>,
    /// The filter.
    #[command(flatten)]
    pub wanted: Wanted,
    /// Only the children of this instance
    #[arg(long, value_name = "MACHINE/KEY", value_parser = instance, conflicts_with_all = ["search"])]
    pub parent: Option<(String, String)>,
    /// The maximum number of instances on a page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// The next page, with the cursor that the last page ended with
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
    /// List the oldest instances first
    #[arg(long)]
    pub oldest: bool,
    /// Fill the page without a limit on the number of instances examined
    #[arg(long)]
    pub all: bool,
}

/// `fsm show`.
#[derive(Debug, ClapArgs)]
pub struct Show {
    /// The machine
    pub machine: String,
    /// The key
    pub key: String,
    /// Exit with code 6 if the instance is in error
    #[arg(long)]
    pub exit_status: bool,
    /// Continue to print changes until the instance has ended
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Print all attempts, also consecutive ones that failed with the same error
    #[arg(long)]
    pub all: bool,
}

/// `fsm wait`.
#[derive(Debug, ClapArgs)]
pub struct Wait {
    /// The machine
    pub machine: String,
    /// The key
    pub key: String,
    /// `settled`: nothing is executing, scheduled or in the inbox; `end`: the instance has ended; or a state
    #[arg(long = "for", default_value = "settled", value_name = "settled|end|STATE")]
    pub what: String,
    /// The maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
}

/// The machine and the key of `MACHINE/KEY`. No machine has a slash in its name; a key may.
fn instance(text: &str) -> Result<(String, String), String> {
    let (machine, key) = text.split_once('/').ok_or("it is a machine and a key, like `order/o-7`")?;
    Ok((machine.to_owned(), key.to_owned()))
}

/// `fsm simulate`.
#[derive(Debug, ClapArgs)]
pub struct Simulate {
    /// `[RETRIES] MIN [MAX]`, as in `#[retry(10, "5s", "1h")]`, or a machine and its verb
    #[arg(required = true, num_args = 1..=3, value_name = "POLICY")]
    pub words: Vec<String>,
    /// Show which attempt succeeds if all attempts fail for this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub outage: Option<Duration>,
    /// The maximum share of each wait that jitter adds, like 0.1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub jitter: Option<f64>,
    /// The maximum time between the first attempt and the start of the last one
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub within: Option<Duration>,
    /// The maximum number of rows
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rows: u32,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1, like 0.1 for a tenth".into()),
    }
}
