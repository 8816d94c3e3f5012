//! The figures of one database, as a table or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

pub struct Report {
    heading: Vec<String>,
    command: String,
    rows: Vec<Row>,
}

struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    comment: String,
}

impl Report {
    pub fn new(heading: &[String], command: &str) -> Report {
        Report { heading: heading.to_vec(), command: command.to_owned(), rows: Vec::new() }
    }

    /// Adds a figure with a comment.
    pub fn put(&mut self, what: impl Into<String>, value: f64, unit: &'static str, comment: impl Into<String>) {
        let row = Row { what: what.into(), value, unit, comment: comment.into() };
        eprintln!("{}", row.line());
        self.rows.push(row);
    }

    /// Adds a line to the comment of the last figure.
    pub fn add_comment_line(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.comment = format!("{}\n{:<70}{text}", row.comment, "");
            eprintln!("{:<70}{text}", "");
        }
    }

    /// Returns an earlier figure of this run.
    pub fn value(&self, what: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.what == what).map(|row| row.value)
    }

    /// Returns the name of the database.
    pub fn title(&self) -> &str {
        &self.heading[0]
    }

    /// Returns the name, the value and the unit of each figure.
    pub fn figures(&self) -> impl Iterator<Item = (&str, f64, &'static str)> {
        self.rows.iter().map(|row| (row.what.as_str(), row.value, row.unit))
    }

    pub fn table(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(Row::line).collect();
        format!("\n{}\n{}\n\n{}\n", self.heading.join("\n"), self.command, rows.join("\n"))
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Value> =
            self.rows.iter().map(|row| json!({"what": row.what, "value": row.value, "unit": row.unit, "beside": row.comment})).collect();
        json!({"database": self.heading[0], "machine": self.heading[1], "command": self.command, "figures": rows})
    }
}

impl Row {
    fn line(&self) -> String {
        let value = if self.value >= 100.0 { format!("{:.0}", self.value) } else { format!("{:.2}", self.value) };
        format!("{:<44} {value:>9} {:<14} {}", self.what, self.unit, self.comment).trim_end().to_owned()
    }
}

/// Returns the median and the 99th percentile in milliseconds.
pub fn percentiles(mut samples: Vec<Duration>) -> (f64, f64) {
    samples.sort_unstable();
    let at = |share: f64| {
        let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
        samples.get(index).map_or(0.0, |sample| sample.as_secs_f64() * 1e3)
    };
    (at(0.5), at(0.99))
}
