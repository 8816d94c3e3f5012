//! `fsm schedules`: lists the schedules, and pauses, resumes, triggers or forgets one.

use fsm_runtime::admin::schedules::{ScheduleAct, ScheduleState};
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use serde_json::json;

use super::session::{Session, located};
use crate::args::{OnSchedule, OneSchedule, Schedules};
use crate::problem::Problem;
use crate::table::{BAD, Cell, GOOD, OPEN, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: Schedules) -> Result<(), Problem> {
    match wanted.act {
        None => {
            let database = session.to_read_all().await?;
            list(session, &database).await?;
            session.check_partitions(&database)
        }
        Some(OnSchedule::Pause(one)) => act(session, ScheduleAct::Pause, "paused", one).await,
        Some(OnSchedule::Resume(one)) => act(session, ScheduleAct::Resume, "resumed", one).await,
        Some(OnSchedule::Trigger(one)) => {
            act(session, ScheduleAct::Trigger, "triggered: a worker that declares it sends the event", one).await
        }
        Some(OnSchedule::Forget(one)) => act(session, ScheduleAct::Forget, "forgotten", one).await,
    }
}

async fn act(session: &mut Session<'_, '_>, act: ScheduleAct, done: &str, one: OneSchedule) -> Result<(), Problem> {
    let database = session.to_act_on_all().await?;
    let actor = one.actor.or_else(|| session.stage.actor.clone());
    if let Err(error) = database.operate_schedule(&one.name, act, actor.as_deref()).await {
        // It may be in a partition that could not be read.
        session.check_partitions(&database)?;
        return Err(error.into());
    }
    if session.is_json {
        return session.stage.json(&json!({ "schedule": one.name, "act": format!("{act:?}").to_lowercase(), "done": true }));
    }
    session.stage.say(&format!("the schedule `{}` is {done}", one.name));
    Ok(())
}

async fn list(session: &mut Session<'_, '_>, database: &WholeDatabase) -> Result<(), Problem> {
    let (now, schedules) = (database.now(), database.schedules().await?);
    if session.is_json {
        let shown: Vec<_> = schedules
            .iter()
            .map(|Located { partition, row }| {
                let text = |at: Option<fsm_core::time::Timestamp>| at.map(|at| at.to_string());
                let told = json!({
                    "name": row.name,
                    "machine": row.definition.machine,
                    "timetable": row.definition.timetable,
                    "zone": row.definition.zone,
                    "missed": row.definition.missed,
                    "state": ScheduleState::of(row, now).to_string(),
                    "next_at": text(row.next_at.filter(|_| !row.paused)),
                    "last_at": text(row.last_at),
                    "last_key": row.last_key,
                    "failed_at": text(row.failed_at),
                    "error": row.error,
                    "triggered_at": text(row.requested_at),
                    "declared_at": row.declared_at.to_string(),
                    "actor": row.actor,
                });
                located(*partition, told)
            })
            .collect();
        return session.stage.json(&json!({ "schedules": shown }));
    }
    let mut table = Table::new(&["NAME", "SCHEDULE", "ZONE", "MACHINE", "NEXT", "LAST", "MISSED", "STATE"]);
    for Located { row, .. } in &schedules {
        let state = ScheduleState::of(row, now);
        let style = match state {
            ScheduleState::Active => GOOD,
            ScheduleState::Paused => OPEN,
            ScheduleState::Failing | ScheduleState::Undeclared => BAD,
        };
        let moment = |at: Option<fsm_core::time::Timestamp>| at.map_or("-".to_owned(), |at| session.stage.moment(at, now));
        let state = if row.requested_at.is_some() { format!("{state}, triggered") } else { state.to_string() };
        table.row([
            Cell::from(&row.name),
            Cell::from(&row.definition.timetable),
            Cell::from(&row.definition.zone),
            Cell::from(&row.definition.machine),
            Cell::from(moment(row.next_at.filter(|_| !row.paused))),
            Cell::from(moment(row.last_at)),
            Cell::from(&row.definition.missed),
            Cell::styled(state, style),
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no program has declared a schedule on this database");
    }
    for Located { row, .. } in schedules.iter().filter(|located| ScheduleState::of(&located.row, now) == ScheduleState::Failing) {
        if let (Some(at), Some(why)) = (row.failed_at, &row.error) {
            session.stage.say(&format!("the schedule `{}` did not send its moment {at}: {why}", row.name));
        }
    }
    Ok(())
}
