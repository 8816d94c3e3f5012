//! `fsm machines`: lists the machines that were ever started on this database.

use fsm_runtime::admin::whole::WholeDatabase;
use serde_json::json;

use super::session::Session;
use crate::problem::Problem;
use crate::table::{BAD, Cell, Table};

/// The limit of all counts.
const MOST: u32 = 10_000;

pub(super) async fn run(session: &mut Session<'_, '_>) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase) -> Result<(), Problem> {
    let mut table = Table::new(&["MACHINE", "STATES", "INSTANCES", "IN ERROR", "DEFINITIONS", "STARTED", "ABOUT"]);
    let mut all = Vec::new();
    for known in database.machines() {
        let machine = &known.machine;
        let (instances, in_error) = database.sizes(&machine.name, MOST).await?;
        // Inside a program, a machine is known before it was first started.
        let is_known = known.definitions > 0;
        let docs = machine.docs.lines().next().unwrap_or_default().trim();
        table.row([
            Cell::from(&machine.name),
            Cell::from(machine.states().count().to_string()),
            Cell::from(counted(instances)),
            if in_error > 0 { Cell::styled(counted(in_error), BAD) } else { Cell::from("0") },
            Cell::from(known.definitions.to_string()),
            Cell::from(if is_known { session.stage.moment(known.last_seen_at, database.now()) } else { "never".into() }),
            Cell::from(docs),
        ]);
        all.push(json!({
            "machine": machine.name,
            "docs": machine.docs,
            "states": machine.states().collect::<Vec<_>>(),
            "instances": instances,
            "in_error": in_error,
            "counted_up_to": MOST,
            "definitions": known.definitions,
            "hash": known.hash,
            "first_seen_at": is_known.then(|| known.first_seen_at.to_string()),
            "last_seen_at": is_known.then(|| known.last_seen_at.to_string()),
        }));
    }
    if session.is_json {
        return session.stage.json(&json!({ "machines": all }));
    }
    if table.is_empty() {
        session.stage.say("no machine was ever started on this database");
    }
    session.stage.table(&table)
}

/// A count, with a plus sign if it stopped at the limit.
fn counted(count: u64) -> String {
    if count >= u64::from(MOST) { format!("{MOST}+") } else { count.to_string() }
}
