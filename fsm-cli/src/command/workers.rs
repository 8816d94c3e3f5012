//! `fsm workers`: lists worker processes, and dead ones whose sessions have not been removed yet.

use fsm_runtime::admin::whole::{Located, WholeDatabase};
use serde_json::json;

use super::session::{Session, located};
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, Table};

pub(super) async fn run(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase) -> Result<(), Problem> {
    let now = database.now();
    let workers = database.workers().await?;
    if session.is_json {
        let shown: Vec<_> = workers
            .iter()
            .map(|Located { partition, row: worker }| {
                let told = json!({
                    "session": worker.session,
                    "host": worker.host,
                    "pid": worker.pid,
                    "started_at": worker.started_at.to_string(),
                    "lease_until": worker.lease_until.to_string(),
                    "lives": worker.lease_until > now,
                    "executing": worker.executing,
                    "unreported": worker.unreported,
                });
                located(*partition, told)
            })
            .collect();
        return session.stage.json(&json!({ "workers": shown }));
    }
    let has_several = database.number() > 1;
    let heads = ["PARTITION", "SESSION", "HOST", "PID", "STARTED", "LEASE ENDS", "EXECUTING", "UNREPORTED", ""];
    let mut table = Table::new(if has_several { &heads } else { &heads[1..] });
    for Located { partition, row: worker } in &workers {
        let lives = worker.lease_until > now;
        let number = partition.filter(|_| has_several).map(|number| Cell::from(number.to_string()));
        let cells = [
            Cell::from(worker.session.to_string()),
            Cell::from(&worker.host),
            Cell::from(worker.pid.to_string()),
            Cell::from(session.stage.moment(worker.started_at, now)),
            Cell::from(session.stage.moment(worker.lease_until, now)),
            Cell::from(worker.executing.to_string()),
            if worker.unreported > 0 { Cell::styled(worker.unreported.to_string(), BAD) } else { Cell::from("0") },
            if lives { Cell::styled("lives", GOOD) } else { Cell::styled("dead", BAD) },
        ];
        table.row(number.into_iter().chain(cells));
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no process works on this database");
    }
    Ok(())
}
