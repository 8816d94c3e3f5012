//! `fsm doctor`: prints the results of the checks, for each partition if the database has partitions.

use fsm_runtime::admin::checkup::{Finding, Level};
use fsm_runtime::admin::{Admin, Opening};
use fsm_runtime::error::Error;
use serde_json::{Value, json};

use super::session::Session;
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

/// The findings about one partition, or about a database without partitions.
struct Examined {
    partition: Option<u32>,
    findings: Vec<Finding>,
}

pub(super) async fn run(session: &mut Session<'_, '_>, is_deep: bool, is_strict: bool) -> Result<(), Problem> {
    let mut all = Vec::new();
    for (partition, opening) in session.each_partition().await? {
        let found = examine(opening, is_deep).await;
        // A partition that cannot be examined does not hide the findings about the others.
        let findings = match (partition, found) {
            (Some(_), Err(error)) => vec![Finding { level: Level::Error, about: "partition".into(), says: error.to_string() }],
            (_, found) => found?,
        };
        all.push(Examined { partition, findings });
    }
    let of_level = |level: Level| all.iter().flat_map(|one| &one.findings).filter(|finding| finding.level == level).count();
    let (broken, warnings) = (of_level(Level::Error), of_level(Level::Warning));
    if session.is_json {
        let findings: Vec<_> = all.iter().flat_map(|one| one.findings.iter().map(|finding| told(one.partition, finding))).collect();
        session.stage.json(&json!({ "deep": is_deep, "broken": broken, "warnings": warnings, "findings": findings }))?;
    } else {
        all.iter().try_for_each(|one| show(session, one))?;
        if !is_deep {
            session.stage.say("invariants, all instances and the whole file are looked at with --deep, which reads whole tables");
        }
    }
    match (broken, warnings) {
        (0, n) if n > 0 && is_strict => Err(Problem::Failed(format!("there are {n} warnings, and --strict was given"))),
        (0, _) => Ok(()),
        (n, _) => Err(Problem::Failed(format!("the database breaks what is promised: {n} findings"))),
    }
}

async fn examine(opening: Opening, is_deep: bool) -> Result<Vec<Finding>, Error> {
    let admin = Admin::open(opening).await?;
    let findings = if is_deep { admin.deep_checkup().await } else { admin.checkup().await };
    admin.close_if_own().await;
    findings
}

/// Prints the findings. On a terminal, those of a partition have a heading; elsewhere, the number of the partition is the first column.
fn show(session: &mut Session<'_, '_>, examined: &Examined) -> Result<(), Problem> {
    let number = examined.partition.filter(|_| session.stage.width.is_none());
    let heads: &[&str] = if number.is_some() { &["PARTITION", "", "ABOUT", "FINDING"] } else { &["", "ABOUT", "FINDING"] };
    let mut table = Table::of_sentences(heads);
    for finding in &examined.findings {
        let style = match finding.level {
            Level::Ok => GOOD,
            Level::Warning => OPEN,
            Level::Error => BAD,
        };
        let cells = [Cell::styled(finding.level.as_str(), style), Cell::from(&finding.about), Cell::from(&finding.says)];
        table.row(number.map(|number| Cell::from(number.to_string())).into_iter().chain(cells));
    }
    match examined.partition {
        Some(number) if session.stage.width.is_some() => {
            session.stage.line(&format!("partition {number}"))?;
            session.stage.table(&table)?;
            session.stage.line("")
        }
        _ => session.stage.table(&table),
    }
}

fn told(partition: Option<u32>, finding: &Finding) -> Value {
    json!({ "partition": partition, "level": finding.level.as_str(), "about": finding.about, "says": finding.says })
}
