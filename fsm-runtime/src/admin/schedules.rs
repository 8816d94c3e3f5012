//! Schedules for operators: the list, and the acts on one.

use std::fmt;

use fsm_core::time::Timestamp;
use fsm_store::schedules::{self, ScheduleRow};

use super::Admin;
use super::whole::{Located, WholeDatabase, flat};
use crate::encode;
use crate::error::{Error, ErrorKind};
use crate::schedule::calendar::{Calendar, Timetable};
use crate::schedule::declaring::{UNDECLARED_AFTER, is_declared};

/// The state of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleState {
    /// It sends its moments.
    Active,
    /// The last moment could not be sent. The next one comes as usual.
    Failing,
    /// An operator has paused it.
    Paused,
    /// No worker declares it. It sends nothing.
    Undeclared,
}

/// An act of an operator on a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAct {
    /// Sends no moment until it is resumed.
    Pause,
    /// Sends moments again. Those that passed while it was paused are not sent.
    Resume,
    /// Makes a worker that declares the schedule send an event now, also while it is paused.
    Trigger,
    /// Deletes a schedule that no worker declares.
    Forget,
}

impl ScheduleState {
    /// The state of a schedule at `now`.
    pub fn of(schedule: &ScheduleRow, now: Timestamp) -> ScheduleState {
        if !is_declared(schedule, now) {
            ScheduleState::Undeclared
        } else if schedule.paused {
            ScheduleState::Paused
        } else if schedule.failed_at.is_some() && schedule.failed_at >= schedule.last_at {
            ScheduleState::Failing
        } else {
            ScheduleState::Active
        }
    }
}

impl fmt::Display for ScheduleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScheduleState::Active => "active",
            ScheduleState::Failing => "failing",
            ScheduleState::Paused => "paused",
            ScheduleState::Undeclared => "undeclared",
        })
    }
}

impl Admin {
    /// All schedules that programs have declared, by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        self.engine.read(|| async { Ok(schedules::all(&mut self.engine.store.reader().await?.conn()).await?) }).await
    }

    /// Carries out an act on a schedule. The schedule stores the name of the actor.
    ///
    /// Returns an `is_not_found` error if there is no schedule of this name, and `is_not_allowed` if the act does not apply now.
    pub async fn operate_schedule(&self, name: &str, act: ScheduleAct, actor: Option<&str>) -> Result<(), Error> {
        encode::check_operator(actor, None)?;
        let all = self.schedules().await?;
        let Some(row) = all.iter().find(|row| row.name == name) else {
            return Err(unknown(name, all.iter().map(|row| &*row.name)));
        };
        let now = self.now();
        let next = || -> Result<Option<Timestamp>, Error> {
            let calendar = Calendar::new(&Timetable::of(&row.definition.timetable), &row.definition.zone);
            let calendar =
                calendar.map_err(|why| Error::other(ErrorKind::Unreadable, format!("its next moment is unknown here: {why}")))?;
            Ok(calendar.after(now))
        };
        let mut tx = self.engine.store.begin().await?;
        let conn = &mut tx.conn();
        let is_done = match act {
            ScheduleAct::Pause => schedules::pause(conn, name, actor).await?,
            ScheduleAct::Resume => schedules::resume(conn, name, actor, next()?).await?,
            ScheduleAct::Trigger => schedules::request(conn, name, actor, now).await?,
            ScheduleAct::Forget => schedules::forget(conn, name, now - UNDECLARED_AFTER).await?,
        };
        tx.commit().await?;
        if is_done {
            return Ok(());
        }
        let why = match act {
            ScheduleAct::Pause => "it is paused already",
            ScheduleAct::Resume => "it is not paused",
            ScheduleAct::Trigger => "it was triggered already, and no worker that declares it has sent the event yet",
            ScheduleAct::Forget => "a worker declares it; remove it from the program first",
        };
        Err(Error::other(ErrorKind::NotAllowed, format!("the schedule `{}` stays as it is: {why}", name.escape_debug())))
    }
}

impl WholeDatabase {
    /// All schedules of all partitions, by name, each with the partition that sends its moments.
    pub async fn schedules(&self) -> Result<Vec<Located<ScheduleRow>>, Error> {
        let mut all = flat(self.read(async |admin| admin.schedules().await).await?);
        all.sort_by(|one, other| one.row.name.cmp(&other.row.name));
        Ok(all)
    }

    /// Carries out an act on a schedule, in its partition. Returns the errors of [`Admin::operate_schedule`].
    pub async fn operate_schedule(&self, name: &str, act: ScheduleAct, actor: Option<&str>) -> Result<(), Error> {
        let all = self.schedules().await?;
        match all.iter().find(|located| located.row.name == name) {
            Some(located) => self.partition(located.partition).operate_schedule(name, act, actor).await,
            None => Err(unknown(name, all.iter().map(|located| &*located.row.name))),
        }
    }
}

fn unknown<'n>(name: &str, all: impl Iterator<Item = &'n str>) -> Error {
    let names: Vec<_> = all.map(|name| format!("`{}`", name.escape_debug())).collect();
    let has = if names.is_empty() { "no program has declared one".to_owned() } else { format!("there are {}", names.join(", ")) };
    Error::other(ErrorKind::NotFound, format!("there is no schedule `{}`; {has}", name.escape_debug()))
}
