//! Declares the schedules of a program in the database. Of two definitions of a schedule, the one that a worker was started with last counts, until
//! no worker declares it any more.

use std::time::Duration;

use fsm_core::time::Timestamp;
use fsm_store::open::Store;
use fsm_store::schedules::{self, ScheduleDefinition, ScheduleRow};
use fsm_store::tx::Tx;

use super::Planned;
use crate::error::{Error, ErrorKind};

/// The interval at which the workers together renew the declaration of a schedule.
pub(super) const RENEWED_EVERY: Duration = Duration::from_secs(30);
/// A schedule that no worker has declared for this time is not declared any more.
pub(crate) const UNDECLARED_AFTER: Duration = Duration::from_secs(120);
/// The number of tries to write a definition while other processes move the schedule.
const TRIES: usize = 10;

/// True if a worker declared the schedule like this a short time before `now`.
pub(crate) fn is_declared(schedule: &ScheduleRow, now: Timestamp) -> bool {
    now.since(schedule.declared_at) <= UNDECLARED_AFTER
}

impl Planned {
    pub(super) fn definition(&self) -> ScheduleDefinition {
        ScheduleDefinition {
            machine: self.machine.to_owned(),
            timetable: self.timetable.to_string(),
            zone: self.zone.clone(),
            missed: self.missed.as_str().to_owned(),
        }
    }
}

/// Stores the schedules of a program that starts at `now`. Schedules with other moments than the database has begin at `now`; the others go on
/// where they are.
///
/// Returns an `is_input` error if a schedule has no moment at all, like the 30th of February.
pub(crate) async fn declare_all(store: &Store, now: Timestamp, schedules: &[Planned]) -> Result<(), Error> {
    for planned in schedules {
        if planned.calendar.after(now).is_none() {
            let (name, timetable) = (planned.name.escape_debug(), &planned.timetable);
            return Err(Error::input(format!("the schedule `{name}` cannot run: `{timetable}` has no moment")));
        }
        declare(store, planned, now, now).await?;
    }
    Ok(())
}

/// Stores the definition of a schedule. If its moments are others than the database has, the first one is after `from`.
pub(super) async fn declare(store: &Store, planned: &Planned, now: Timestamp, from: Timestamp) -> Result<(), Error> {
    for _ in 0..TRIES {
        let mut tx = store.begin().await?;
        let is_written = write(&mut tx, planned, now, from).await?;
        tx.commit().await?;
        if is_written {
            return Ok(());
        }
    }
    let text = format!("other processes kept changing the schedule `{}` at the same time", planned.name);
    Err(Error::other(ErrorKind::Contended, text))
}

/// Returns `false` if another process has moved the schedule meanwhile.
async fn write(tx: &mut Tx, planned: &Planned, now: Timestamp, from: Timestamp) -> Result<bool, Error> {
    let (conn, definition) = (&mut tx.conn(), planned.definition());
    let Some(row) = schedules::find(conn, &planned.name).await? else {
        return Ok(schedules::add(conn, &planned.name, &definition, now, planned.calendar.after(from)).await?);
    };
    if row.definition == definition {
        schedules::declared(conn, &planned.name, now).await?;
        return Ok(true);
    }
    let has_same_moments = row.definition.timetable == definition.timetable && row.definition.zone == definition.zone;
    let next = if has_same_moments { row.next_at } else { planned.calendar.after(from.max(row.last_at.unwrap_or(from))) };
    tracing::info!(schedule = &*planned.name, was = %row.definition.timetable, now = %definition.timetable, "the schedule has a new definition");
    Ok(schedules::define(conn, &planned.name, &definition, now, (row.next_at, next)).await?)
}
