//! `fsm due`: lists the attempts and timers that are due next.

use fsm_core::limit;
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use fsm_store::overview::ToCome;
use serde_json::json;

use super::liveness::Liveness;
use super::session::{Session, located};
use crate::args::Few;
use crate::problem::Problem;
use crate::table::{Cell, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, few: Few) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database, few).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase, few: Few) -> Result<(), Problem> {
    let mut coming = Vec::new();
    for known in database.selected(few.machine.as_deref())? {
        coming.extend(database.to_come(&known.machine.name, few.limit).await?);
    }
    coming.sort_by_key(|located| located.row.at);
    coming.truncate(few.limit as usize);
    let alive = Liveness::of_all(database).await?.alive();
    if session.is_json {
        let due: Vec<_> = coming
            .iter()
            .map(|Located { partition, row: coming }| {
                let (kind, what) = match &coming.what {
                    ToCome::Attempt { verb, event, number, max_attempts, limit } => {
                        let (limit, value) = limit.as_deref().map(limit::parts).unzip();
                        let what = json!({ "verb": verb, "event": event, "attempt": number, "max_attempts": max_attempts, "limit": limit,
                            "limit_value": value.flatten() });
                        ("attempt", what)
                    }
                    ToCome::Lapsed { verb, event, number, max_attempts } => {
                        ("lapsed", json!({ "verb": verb, "event": event, "attempt": number, "max_attempts": max_attempts }))
                    }
                    ToCome::Event { state: Some(state), event } => ("timer", json!({ "state": state, "event": event })),
                    ToCome::Event { state: None, event } => ("event", json!({ "event": event })),
                };
                let told = json!({ "at": coming.at.to_string(), "machine": coming.machine, "key": coming.key, "kind": kind, "what": what });
                located(*partition, told)
            })
            .collect();
        return session.stage.json(&json!({ "due": due, "workers_alive": alive }));
    }
    let now = database.now();
    let mut table = Table::new(&["AT", "MACHINE", "KEY", "WHAT"]);
    for Located { row: coming, .. } in &coming {
        let what = match &coming.what {
            ToCome::Attempt { verb, number, max_attempts, limit, .. } => {
                let of = max_attempts.map_or_else(String::new, |most| format!(" of {most}"));
                let limit = limit.as_ref().map_or_else(String::new, |limit| format!(", waits for the limit {}", limit::shown(limit)));
                format!("attempt {number}{of} of `{verb}`{limit}")
            }
            ToCome::Lapsed { verb, number, .. } => format!("attempt {number} of `{verb}` is taken over: its worker's lease has ended"),
            ToCome::Event { state: Some(state), .. } => format!("the timer of `{state}`"),
            ToCome::Event { state: None, event } => format!("`{event}` is delivered"),
        };
        let at = session.stage.moment(coming.at, now);
        let at = if coming.at <= now { Cell::styled(at, OPEN) } else { Cell::from(at) };
        table.row([at, Cell::from(&coming.machine), Cell::from(&coming.key), Cell::from(what)]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("nothing happens by itself: every instance rests, is in error, is paused, executes or has ended");
    } else if alive == 0 {
        session.stage.say("no worker is alive: nothing of this happens until one starts");
    }
    Ok(())
}
