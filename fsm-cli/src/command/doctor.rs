//! `fsm doctor`: what may be wrong.

use fsm_runtime::admin::checkup::Level;
use serde_json::json;

use super::Session;
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, is_deep: bool) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let findings = if is_deep { admin.deep_checkup().await? } else { admin.checkup().await? };
    let broken = findings.iter().filter(|finding| finding.level == Level::Error).count();
    if session.is_json {
        let of = |finding: &fsm_runtime::admin::checkup::Finding| json!({ "level": finding.level.as_str(), "about": finding.about, "says": finding.says });
        let answer = json!({ "deep": is_deep, "broken": broken, "findings": findings.iter().map(of).collect::<Vec<_>>() });
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
    match broken {
        0 => Ok(()),
        n => Err(Problem::Failed(format!("the database breaks what is promised: {n} findings"))),
    }
}
