//! The arguments of a peer's process: the figure, the database and the duration.

use std::time::Duration;

use crate::Result;

/// The kind of figure. One process measures one kind, on a database of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Sends without workers.
    Enqueue,
    /// Sends with workers that run the jobs.
    Both,
    /// One job at a time.
    Idle,
}

pub struct Arguments {
    pub figure: Figure,
    pub database: String,
    pub each: Duration,
    pub callers: Vec<usize>,
    /// The setting `synchronous` of SQLite: `full` or `normal`. PostgreSQL has its own setting on the server.
    pub synchronous: String,
}

impl Arguments {
    pub fn parse() -> Result<Arguments> {
        let mut words = std::env::args().skip(1);
        let figure = match words.next().as_deref() {
            Some("enqueue") => Figure::Enqueue,
            Some("both") => Figure::Both,
            Some("idle") => Figure::Idle,
            _ => return Err("the first word is `enqueue`, `both` or `idle`".into()),
        };
        let mut arguments = Arguments {
            figure,
            database: String::new(),
            each: Duration::from_secs(2),
            callers: vec![256, 2000],
            synchronous: "full".to_owned(),
        };
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("`{word}` takes a value"))?;
            match word.as_str() {
                "--database" => arguments.database = value,
                "--seconds" => arguments.each = Duration::from_secs_f64(value.parse()?),
                "--callers" => arguments.callers = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--synchronous" => arguments.synchronous = value,
                _ => return Err(format!("`{word}` is no argument").into()),
            }
        }
        if arguments.database.is_empty() {
            return Err("`--database` is missing".into());
        }
        Ok(arguments)
    }

    /// True if workers run the jobs.
    pub fn has_workers(&self) -> bool {
        self.figure != Figure::Enqueue
    }

    /// True if the peer is to be configured for one job at a time, where that differs from the settings for many jobs.
    pub fn is_idle(&self) -> bool {
        self.figure == Figure::Idle
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> &str {
        self.database.trim_start_matches("sqlite://")
    }
}
