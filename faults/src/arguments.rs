//! The arguments of the program.

use crate::Failure;
use crate::ground::Kind;
use crate::scenario::{ALL, Size};

/// The scenario that takes an hour.
const SOAK: &str = "soak";

/// The scenarios to run, and their size.
pub struct Arguments {
    names: Vec<String>,
    pub database: Option<Kind>,
    pub size: Size,
}

impl Arguments {
    /// Parses the arguments. The error names the invalid one and lists the valid ones.
    pub fn parse(words: &[String]) -> Result<Arguments, Failure> {
        let size = Size { is_short: false, kills: None, transitions: None, seconds: None, minutes: None, seed: 1 };
        let mut arguments = Arguments { names: Vec::new(), database: None, size };
        let (mut words, mut has_seed) = (words.iter(), false);
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, Failure> {
                let value = words.next().ok_or_else(|| format!("`{word}` needs a number"))?;
                value.parse().map_err(|_| format!("`{word}` needs a number, not `{value}`").into())
            };
            match word.as_str() {
                "--short" => arguments.size.is_short = true,
                "--kills" => arguments.size.kills = Some(number()?),
                "--transitions" => arguments.size.transitions = Some(number()?),
                "--seconds" => arguments.size.seconds = Some(number()?),
                "--minutes" => arguments.size.minutes = Some(number()?),
                "--seed" => {
                    arguments.size.seed = number()?;
                    has_seed = true;
                }
                "sqlite" => arguments.database = Some(Kind::Sqlite),
                "postgres" => arguments.database = Some(Kind::Postgres),
                name if ALL.iter().any(|scenario| scenario.name == name) => arguments.names.push(name.to_owned()),
                other => return Err(format!("`{other}` is not known\n\n{}", help()).into()),
            }
        }
        // A soak with a fixed seed would repeat the same schedule.
        if arguments.names(SOAK) && !has_seed {
            arguments.size.seed = crate::load::now_us() % 1_000_000;
        }
        Ok(arguments)
    }

    /// Returns true if the scenario was named.
    pub fn names(&self, name: &str) -> bool {
        self.names.iter().any(|wanted| wanted == name)
    }

    /// Returns true if the scenario is to run. Without names, all scenarios except the soak run.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() && name != SOAK || self.names(name)
    }
}

fn help() -> String {
    let scenarios: String = ALL.iter().map(|one| format!("  {:<12} {}\n", one.name, one.says)).collect();
    format!(
        "faults [NAME…] [sqlite|postgres] [--short] [--kills N] [--transitions N] [--seconds N] [--minutes N] [--seed N]\n\n{scenarios}"
    )
}
