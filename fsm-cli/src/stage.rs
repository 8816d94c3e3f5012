//! The environment of a command: its outputs for data and for messages, its input, and the terminal.

use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdin, stdout};

use fsm_core::duration;
use fsm_core::time::Timestamp;
use serde_json::Value;

use crate::clean::{clean, clean_json};
use crate::problem::Problem;
use crate::table::Table;

/// The environment of a command. The program takes it from its process; a test builds it.
pub struct Stage<'a> {
    /// The output for data.
    pub out: Box<dyn Write + 'a>,
    /// The output for messages.
    pub talk: Box<dyn Write + 'a>,
    /// The input for confirmations.
    pub input: Box<dyn BufRead + 'a>,
    /// The number of columns of the terminal that shows the data; `None` if the data goes elsewhere.
    pub width: Option<usize>,
    /// True if a person can answer.
    pub answers: bool,
    /// True if the standard error is a terminal, which shows progress bars.
    pub shows_progress: bool,
    /// A clock that does not move; `None` uses the database's clock.
    pub now: Option<Timestamp>,
    /// The operator's name, unless the arguments give one.
    pub actor: Option<String>,
}

impl Stage<'_> {
    /// The environment of this process. Colours are removed if the output is not a terminal or `NO_COLOR` is set.
    pub fn of_process() -> Stage<'static> {
        let width = stdout().is_terminal().then(|| terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)));
        let actor = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|actor| !actor.is_empty());
        Stage {
            out: Box::new(anstream::AutoStream::auto(stdout())),
            talk: Box::new(anstream::AutoStream::auto(stderr())),
            input: Box::new(BufReader::new(stdin())),
            width,
            answers: stdin().is_terminal() && stderr().is_terminal(),
            shows_progress: stderr().is_terminal(),
            now: None,
            actor,
        }
    }

    /// Writes a line of data.
    pub fn line(&mut self, line: &str) -> Result<(), Problem> {
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Writes lines of data that end with a line feed.
    pub fn text(&mut self, text: &str) -> Result<(), Problem> {
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// Flushes the data.
    pub fn flush(&mut self) -> Result<(), Problem> {
        Ok(self.out.flush()?)
    }

    /// Clears the terminal if the data goes to one.
    pub fn clear(&mut self) -> Result<(), Problem> {
        if self.width.is_some() { self.text("\u{1b}[2J\u{1b}[H") } else { Ok(()) }
    }

    /// Writes a message. Errors are ignored.
    pub fn say(&mut self, line: &str) {
        let _ = writeln!(self.talk, "{}", clean(line));
    }

    /// Writes a table: aligned on a terminal, otherwise as rows with tabs between the cells.
    pub fn table(&mut self, table: &Table) -> Result<(), Problem> {
        let text = match self.width {
            Some(width) => table.drawn(width),
            None => table.tabbed(),
        };
        self.text(&text)
    }

    /// Writes a JSON document: indented on a terminal, otherwise in one line.
    pub fn json(&mut self, value: &Value) -> Result<(), Problem> {
        let text = if self.width.is_some() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        let text = text.map_err(|error| Problem::Failed(format!("the answer does not encode as JSON: {error}")))?;
        self.line(&clean_json(&text))
    }

    /// A time: relative to `now` on a terminal, otherwise absolute.
    pub fn moment(&self, at: Timestamp, now: Timestamp) -> String {
        if self.width.is_some() { apart(at, now) } else { at.to_string() }
    }

    /// Asks a person to type `word`; any other answer means no. Returns a `Usage` error if nobody can answer.
    pub fn confirm(&mut self, question: &str, word: &str) -> Result<(), Problem> {
        if !self.answers {
            return Err(Problem::Usage(format!("{question} Nobody is there to answer: say `--yes`, or `--dry-run` to see them")));
        }
        let _ = write!(self.talk, "{} Type {word} to go on: ", clean(question));
        let _ = self.talk.flush();
        let mut answer = String::new();
        self.input.read_line(&mut answer)?;
        if answer.trim() == word { Ok(()) } else { Err(Problem::Failed("nothing was done".into())) }
    }
}

/// The distance of a time from now for people, in its two largest units.
pub fn apart(at: Timestamp, now: Timestamp) -> String {
    let (later, earlier) = (at.since(now), now.since(at));
    if later.is_zero() && earlier.as_secs() == 0 {
        return "now".into();
    }
    if later.is_zero() { format!("{} ago", rough(earlier)) } else { format!("in {}", rough(later)) }
}

/// A duration in its two largest units, or in milliseconds if it is below a second.
pub fn rough(span: std::time::Duration) -> String {
    let us = match span.as_secs() {
        0 => return short(span),
        s @ 1..3600 => s * 1_000_000,
        s @ 3600..86_400 => s / 60 * 60_000_000,
        s => s / 3600 * 3_600_000_000,
    };
    duration::display(std::time::Duration::from_micros(us))
}

/// A duration in milliseconds, or in microseconds if it is below a millisecond.
pub fn short(span: std::time::Duration) -> String {
    let ms = span.as_millis();
    if ms == 0 { duration::display(span) } else { duration::display(std::time::Duration::from_millis(ms as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_moment_is() {
        let now = Timestamp::from_micros(1_000_000_000_000_000);
        let cases = [
            (0, "now"),
            (-999_999, "now"),
            (5_000_000, "in 5s"),
            (250_000, "in 250ms"),
            (-61_000_000, "1m1s ago"),
            (3_661_000_000, "in 1h1m"),
            (-90_061_000_000, "1d1h ago"),
        ];
        for (us, expected) in cases {
            assert_eq!(apart(Timestamp::from_micros(now.as_micros() + us), now), expected);
        }
    }
}
