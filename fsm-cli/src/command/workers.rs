//! `fsm workers`: lists worker processes, and dead ones whose sessions have not been removed yet.

use serde_json::json;

use super::session::Session;
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, Table};

pub(super) async fn run(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let now = admin.now();
    let workers = admin.workers().await?;
    if session.is_json {
        let shown: Vec<_> = workers
            .iter()
            .map(|worker| {
                json!({
                    "session": worker.session,
                    "host": worker.host,
                    "pid": worker.pid,
                    "started_at": worker.started_at.to_string(),
                    "lease_until": worker.lease_until.to_string(),
                    "lives": worker.lease_until > now,
                    "executing": worker.executing,
                    "unreported": worker.unreported,
                })
            })
            .collect();
        return session.stage.json(&json!({ "workers": shown }));
    }
    let mut table = Table::new(&["SESSION", "HOST", "PID", "STARTED", "LEASE ENDS", "EXECUTING", "UNREPORTED", ""]);
    for worker in &workers {
        let lives = worker.lease_until > now;
        table.row([
            Cell::from(worker.session.to_string()),
            Cell::from(&worker.host),
            Cell::from(worker.pid.to_string()),
            Cell::from(session.stage.moment(worker.started_at, now)),
            Cell::from(session.stage.moment(worker.lease_until, now)),
            Cell::from(worker.executing.to_string()),
            if worker.unreported > 0 { Cell::styled(worker.unreported.to_string(), BAD) } else { Cell::from("0") },
            if lives { Cell::styled("lives", GOOD) } else { Cell::styled("dead", BAD) },
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no process works on this database");
    }
    Ok(())
}
