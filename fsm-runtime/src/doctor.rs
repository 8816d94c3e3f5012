//! `doctor`: checks every invariant of a database, for operators and at the end of each test.

use std::fmt;

use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::invariants::{self, Invariant};

use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::engines::Engines;
use crate::error::Error;

/// Checks every invariant in the database of a client, a runtime, an [`Admin`](crate::admin::Admin) or a test bed, and returns the rows
/// that violate each. Changes nothing.
///
/// Reads whole tables, so do not call it under load. Returns an `is_database` error if a statement does not finish within its limit of 30
/// s.
///
/// ```no_run
/// # async fn examine(client: fsm_runtime::client::Client) -> Result<(), fsm_runtime::error::Error> {
/// let report = fsm_runtime::doctor::doctor(&client).await?;
/// println!("{report}");
/// assert!(report.is_healthy());
/// # Ok(()) }
/// ```
pub async fn doctor(database: impl Into<EngineAccess>) -> Result<Report, Error> {
    database.into().engines.examine().await
}

/// The result for every invariant. `Display` is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// All invariants in the order of their numbers, including those that hold.
    pub invariants: Vec<Invariant>,
}

/// The maximum number of rows that are printed for each invariant.
const PRINTED: usize = 10;

impl Report {
    pub(crate) async fn of(conn: &mut Conn<'_>) -> Result<Report, StoreError> {
        Ok(Report { invariants: invariants::examine(conn).await? })
    }

    /// Adds the violations that another partition has.
    fn add(&mut self, other: Report) {
        for (invariant, others) in self.invariants.iter_mut().zip(other.invariants) {
            invariant.rows.extend(others.rows);
            invariant.others += others.others;
        }
    }

    /// Returns true if every invariant holds.
    pub fn is_healthy(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The invariants that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Invariant> {
        self.invariants.iter().filter(|invariant| !invariant.holds())
    }
}

impl Engine {
    pub(crate) async fn examine(&self) -> Result<Report, Error> {
        self.read(|| async {
            let mut tx = self.store.examination().await?;
            let report = Report::of(&mut tx.conn()).await?;
            tx.rollback().await?;
            Ok(report)
        })
        .await
    }
}

impl Engines {
    /// Examines all partitions. Rows of a partition are named with its number.
    pub(crate) async fn examine(&self) -> Result<Report, Error> {
        let mut report: Option<Report> = None;
        for engine in self.all() {
            let mut examined = engine.examine().await?;
            if let Some(partition) = engine.partition {
                let rows = examined.invariants.iter_mut().flat_map(|invariant| &mut invariant.rows);
                rows.for_each(|row| *row = format!("partition {}: {row}", partition.number()));
            }
            match &mut report {
                None => report = Some(examined),
                Some(report) => report.add(examined),
            }
        }
        Ok(report.expect("there is at least one engine"))
    }

    pub(crate) async fn check_invariants(&self) -> Result<Vec<Invariant>, Error> {
        Ok(self.examine().await?.invariants.into_iter().filter(|invariant| !invariant.holds()).collect())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Invariant { number, says, rows, others } in &self.invariants {
            let word = if rows.is_empty() { "holds" } else { "BROKEN" };
            writeln!(f, "{number:<4} {word:<7} {says}")?;
            rows.iter().take(PRINTED).try_for_each(|row| writeln!(f, "             {row}"))?;
            match rows.len().saturating_sub(PRINTED) + others {
                0 => {}
                more => writeln!(f, "             and {more} more")?,
            }
        }
        match self.broken().count() {
            0 => write!(f, "all {} invariants hold", self.invariants.len()),
            broken => write!(f, "{broken} of {} invariants do not hold", self.invariants.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: usize, others: usize) -> Report {
        let rows = (0..rows).map(|n| format!("row {n} is odd")).collect();
        let holds = Invariant { number: "I1", says: "all is well", rows: vec![], others: 0 };
        Report { invariants: vec![holds, Invariant { number: "I2", says: "no row is odd", rows, others }] }
    }

    #[test]
    fn a_report_reads_like_a_list() {
        assert_eq!(report(0, 0).to_string(), "I1   holds   all is well\nI2   holds   no row is odd\nall 2 invariants hold");
        let broken = report(12, 5);
        assert!(!broken.is_healthy());
        let text = broken.to_string();
        assert!(text.starts_with("I1   holds   all is well\nI2   BROKEN  no row is odd\n             row 0 is odd\n"), "{text}");
        assert!(text.ends_with("             row 9 is odd\n             and 7 more\n1 of 2 invariants do not hold"), "{text}");
    }
}
