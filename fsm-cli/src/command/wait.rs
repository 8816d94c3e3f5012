//! `fsm wait`: waits until an instance has settled, has ended, or is in a state.

use std::time::Duration;

use fsm_core::instance::Status;
use fsm_runtime::admin::Admin;
use fsm_runtime::handle::instance_view::InstanceView;

use super::liveness::Liveness;
use super::ls;
use super::session::Session;
use crate::args::Wait;
use crate::problem::Problem;
use crate::table::{Cell, Table};

pub(super) async fn run(session: &mut Session<'_, '_>, wait: &Wait) -> Result<(), Problem> {
    let admin = session.to_read_key(&wait.key).await?;
    let wanted = Wanted::of(&admin, wait)?;
    let found = match wait.timeout {
        Some(limit) => tokio::time::timeout(limit, until(&admin, wait, wanted)).await.map_err(|_| limit),
        None => Ok(until(&admin, wait, wanted).await),
    };
    match found {
        Ok(found) => show(session, &admin, &found?, wanted, &Liveness::of(&admin).await?),
        Err(limit) => Err(too_late(&admin, wait, limit).await?),
    }
}

/// The condition to wait for.
#[derive(Clone, Copy)]
enum Wanted<'w> {
    Settled,
    End,
    State(&'w str),
}

impl<'w> Wanted<'w> {
    /// Parses the condition. The name of a state takes precedence over `settled` and `end`.
    fn of(admin: &Admin, wait: &'w Wait) -> Result<Wanted<'w>, Problem> {
        let machine = &admin.machine(&wait.machine)?.machine;
        match wait.what.as_str() {
            state if machine.states().any(|known| known == state) => Ok(Wanted::State(state)),
            "settled" => Ok(Wanted::Settled),
            "end" => Ok(Wanted::End),
            other => {
                let states: Vec<_> = machine.states().map(|state| format!("`{state}`")).collect();
                let known = format!("`settled`, `end`, {}", states.join(", "));
                Err(Problem::NotFound(format!("`{}` has no state `{other}`; wait for {known}", machine.name)))
            }
        }
    }

    fn is_met(self, seen: &InstanceView) -> bool {
        let row = &seen.row;
        match self {
            Wanted::Settled => !row.is_open && row.inbox_len() == 0,
            Wanted::End => row.status.is_ended(),
            Wanted::State(state) => row.state.as_deref() == Some(state),
        }
    }
}

/// Waits until the instance meets the condition, is in error or has ended, and returns it.
async fn until(admin: &Admin, wait: &Wait, wanted: Wanted<'_>) -> Result<InstanceView, Problem> {
    let mut sight = admin.watch(&wait.machine, &wait.key);
    let mut last = None;
    while let Some(seen) = sight.next().await {
        let seen = seen?;
        if wanted.is_met(&seen) || seen.row.status == Status::Error {
            return Ok(seen);
        }
        last = Some(seen);
    }
    // The stream ends after the instance has ended.
    last.ok_or_else(|| Problem::NotFound(format!("there is no `{}` `{}`", wait.machine, wait.key)))
}

fn show(session: &mut Session<'_, '_>, admin: &Admin, seen: &InstanceView, wanted: Wanted<'_>, liveness: &Liveness) -> Result<(), Problem> {
    let row = &seen.row;
    if session.is_json {
        session.stage.json(&ls::as_json(seen, liveness))?;
    } else {
        let mut table = Table::new(&["MACHINE", "KEY", "STATE", "STATUS", "CHANGED"]);
        let changed = session.stage.moment(row.updated_at, admin.now());
        let state = row.state.as_deref().unwrap_or("-");
        let cells =
            [Cell::from(&row.machine), Cell::from(&row.key), Cell::from(state), ls::status(row.status, row.paused), Cell::from(changed)];
        table.row(cells);
        session.stage.table(&table)?;
    }
    match wanted {
        _ if row.status == Status::Error => Err(Problem::InError),
        Wanted::State(state) if row.state.as_deref() != Some(state) => {
            let at = row.state.as_deref().unwrap_or("no state");
            Err(Problem::Refused(format!("`{}` `{}` is {} in `{at}`, and never comes to `{state}`", row.machine, row.key, row.status)))
        }
        _ => Ok(()),
    }
}

async fn too_late(admin: &Admin, wait: &Wait, limit: Duration) -> Result<Problem, Problem> {
    let seen = admin.details(&wait.machine, &wait.key).await?.seen;
    let limit = fsm_core::duration::display(limit);
    let text =
        format!("`{}` `{}` was waited for in vain, {limit} long: {}", wait.machine, wait.key, Liveness::of(admin).await?.about(&seen));
    Ok(Problem::Failed(text))
}
