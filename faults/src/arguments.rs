//! What the command line says.

use crate::Failure;
use crate::ground::Kind;
use crate::scenario::{ALL, Size};

/// Which scenarios run, and how large.
pub struct Arguments {
    names: Vec<String>,
    pub database: Option<Kind>,
    pub size: Size,
}

impl Arguments {
    /// Reads the words; an error names the one that is wrong and all that would be right.
    pub fn parse(words: &[String]) -> Result<Arguments, Failure> {
        let size = Size { is_short: false, kills: None, transitions: None, seconds: None, seed: 1 };
        let mut arguments = Arguments { names: Vec::new(), database: None, size };
        let mut words = words.iter();
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
                "--seed" => arguments.size.seed = number()?,
                "sqlite" => arguments.database = Some(Kind::Sqlite),
                "postgres" => arguments.database = Some(Kind::Postgres),
                name if ALL.iter().any(|scenario| scenario.name == name) => arguments.names.push(name.to_owned()),
                other => return Err(format!("`{other}` is not known\n\n{}", help()).into()),
            }
        }
        Ok(arguments)
    }

    /// Whether the scenario was asked for by its name.
    pub fn names(&self, name: &str) -> bool {
        self.names.iter().any(|wanted| wanted == name)
    }

    /// Whether the scenario of this name is to run: all do unless some are named.
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names(name)
    }
}

fn help() -> String {
    let scenarios: String = ALL.iter().map(|one| format!("  {:<12} {}\n", one.name, one.says)).collect();
    format!("faults [NAME…] [sqlite|postgres] [--short] [--kills N] [--transitions N] [--seconds N] [--seed N]\n\n{scenarios}")
}
