//! The report of a run: its figures and findings.

use std::fmt;
use std::time::Duration;

use crate::test_server::Folder;

/// The report of a run.
pub struct Report {
    pub took: Duration,
    pub transitions: usize,
    pub acknowledged: usize,
    pub executed: usize,
    pub lost: usize,
    pub invariant_checks: usize,
    pub notes: Vec<String>,
    /// The violations that were found.
    pub findings: Vec<String>,
    pub folder: Folder,
}

impl Report {
    /// Adds a finding if `is_so` is false.
    pub fn require(&mut self, is_so: bool, what: impl fmt::Display) {
        if !is_so {
            self.findings.push(format!("not so: {what}"));
        }
    }

    /// Returns true if there are no findings. If there are, the run's folder is kept.
    pub fn is_clean(&mut self) -> bool {
        self.folder.is_kept = !self.findings.is_empty();
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { took, transitions, acknowledged, executed, lost, invariant_checks, .. } = self;
        write!(
            f,
            "{:.1} s: {transitions} transitions, {acknowledged} acknowledged, {executed} executions, {lost} lost",
            took.as_secs_f32()
        )?;
        write!(f, ", invariants looked at {invariant_checks} times")?;
        self.notes.iter().try_for_each(|note| write!(f, ", {note}"))?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n    {finding}"))?;
        if self.folder.is_kept { write!(f, "\n    ledgers and logs are kept in {}", self.folder.path().display()) } else { Ok(()) }
    }
}
