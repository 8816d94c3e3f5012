//! `fsm doctor`: prints the results of the checks.

use fsm_runtime::admin::checkup::Level;
use serde_json::json;

use super::session::Session;
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, is_deep: bool, is_strict: bool) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let findings = if is_deep { admin.deep_checkup().await? } else { admin.checkup().await? };
    let of_level = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (broken, warnings) = (of_level(Level::Error), of_level(Level::Warning));
    if session.is_json {
        let of = |finding: &fsm_runtime::admin::checkup::Finding| json!({ "level": finding.level.as_str(), "about": finding.about, "says": finding.says });
        let answer =
            json!({ "deep": is_deep, "broken": broken, "warnings": warnings, "findings": findings.iter().map(of).collect::<Vec<_>>() });
        session.stage.json(&answer)?;
    } else {
        let mut table = Table::of_sentences(&["", "ABOUT", "FINDING"]);
        for finding in &findings {
            let style = match finding.level {
                Level::Ok => GOOD,
                Level::Warning => OPEN,
                Level::Error => BAD,
            };
            table.row([Cell::styled(finding.level.as_str(), style), Cell::from(&finding.about), Cell::from(&finding.says)]);
        }
        session.stage.table(&table)?;
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
