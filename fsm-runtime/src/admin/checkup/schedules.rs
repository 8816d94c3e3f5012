//! The checks of `fsm doctor` on schedules: those that no worker declares, that are late, and that could not send an event.

use fsm_core::time::Timestamp;
use fsm_store::schedules::ScheduleRow;

use super::work::PATIENCE;
use super::{Finding, Level, RECENTLY};
use crate::admin::Admin;
use crate::admin::schedules::ScheduleState;
use crate::error::Error;

impl Admin {
    pub(super) async fn schedules_found(&self) -> Result<Vec<Finding>, Error> {
        let (rows, now) = (self.schedules().await?, self.now());
        let mut findings: Vec<_> = rows.iter().flat_map(|row| found(row, now)).collect();
        if findings.is_empty() && !rows.is_empty() {
            findings.push(Finding::new(Level::Ok, "schedules", format!("{} declared, and none is late", rows.len())));
        }
        Ok(findings)
    }
}

fn found(row: &ScheduleRow, now: Timestamp) -> Vec<Finding> {
    let (name, mut findings) = (row.name.escape_debug(), Vec::new());
    let mut warn = |says: String| findings.push(Finding::new(Level::Warning, "schedules", says));
    let late_since = row.next_at.filter(|next| now.since(*next) > PATIENCE);
    match (ScheduleState::of(row, now), late_since) {
        (ScheduleState::Undeclared, _) => warn(format!(
            "no worker has declared the schedule `{name}` since {}, so it sends nothing; start a program that declares it, or delete it with \
             `fsm schedules forget`",
            row.declared_at
        )),
        (ScheduleState::Active | ScheduleState::Failing, Some(since)) => {
            warn(format!("the schedule `{name}` is late: the moment {since} is not sent yet; the workers' logs say why"));
        }
        _ => {}
    }
    if let (Some(at), Some(why)) = (row.failed_at.filter(|at| now.since(*at) < RECENTLY), &row.error) {
        warn(format!("the schedule `{name}` did not send its moment {at}: {why}"));
    }
    findings
}
