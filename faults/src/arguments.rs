//! The command line: the scenarios to run, the databases and the sizes.

use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::scenario::ALL;
use crate::size::Size;
use crate::test_server::Kind;

/// The scenario that takes an hour.
const SOAK: &str = "soak";

/// Runs fault scenarios on real processes: those that are named, or all except the soak.
#[derive(Parser)]
#[command(name = "faults", max_term_width = 120)]
struct Line {
    /// Scenarios and databases
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(values()))]
    names: Vec<String>,
    /// Runs the short form
    #[arg(long)]
    short: bool,
    /// The number of faults
    #[arg(long, value_name = "N")]
    kills: Option<u64>,
    /// The smallest number of transitions
    #[arg(long, value_name = "N")]
    transitions: Option<u64>,
    /// The duration
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The duration of the soak, for each database
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// The seed of all random choices; 1 if not given, and a new one for the soak
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn values() -> Vec<PossibleValue> {
    let databases = [Kind::Sqlite, Kind::Postgres].map(|kind| PossibleValue::new(kind.word()).help("on this database only"));
    ALL.iter().map(|scenario| PossibleValue::new(scenario.name).help(scenario.description)).chain(databases).collect()
}

/// The selected scenarios and their size.
pub struct Arguments {
    names: Vec<String>,
    pub database: Option<Kind>,
    pub size: Size,
}

impl Arguments {
    /// Parses the arguments, the first of which is the name of the program. If they are wrong or ask for help, prints that, and returns
    /// the exit code.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, ExitCode> {
        let line = Line::try_parse_from(words).map_err(|error| {
            // The exit code counts; the answer may be lost with its terminal.
            let _ = error.print();
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        })?;
        let Line { names, short, kills, transitions, seconds, minutes, seed } = line;
        let kind_of = |name: &String| [Kind::Sqlite, Kind::Postgres].into_iter().find(|kind| kind.word() == name);
        let database = names.iter().rev().find_map(kind_of);
        let names: Vec<String> = names.into_iter().filter(|name| kind_of(name).is_none()).collect();
        // A soak with the same seed each time would always meet the same moments.
        let own_seed = || if names.iter().any(|name| name == SOAK) { crate::load::now_us() % 1_000_000 } else { 1 };
        let size = Size { is_short: short, kills, transitions, seconds, minutes, seed: seed.unwrap_or_else(own_seed) };
        Ok(Arguments { names, database, size })
    }

    /// Returns true if the scenario was named.
    pub fn names(&self, name: &str) -> bool {
        self.names.iter().any(|wanted| wanted == name)
    }

    /// Returns true if the scenario is to run: if it was named, or if none was named and it is not the soak.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() && name != SOAK || self.names(name)
    }
}
