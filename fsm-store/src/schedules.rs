//! The rows of schedules.

use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql::{self, Sql};
use super::values::{Value, values};

/// The definition of a schedule, as a program declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDefinition {
    /// The machine that gets the events.
    pub machine: String,
    /// A cron expression, or `every` and an interval.
    pub timetable: String,
    /// The name of the time zone.
    pub zone: String,
    /// The missed moments that are sent: `latest`, `all` or `skip`.
    pub missed: String,
}

/// A schedule, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRow {
    /// The name.
    pub name: String,
    /// The definition of the process that declared it last.
    pub definition: ScheduleDefinition,
    /// The last time that a worker declared that its code declares the schedule like this.
    pub declared_at: Timestamp,
    /// The first moment that was not decided; `None` if no moment follows.
    pub next_at: Option<Timestamp>,
    /// True if an operator has paused it.
    pub paused: bool,
    /// The moment that was sent last.
    pub last_at: Option<Timestamp>,
    /// The key of the instance that got its event.
    pub last_key: Option<String>,
    /// The last moment whose event could not be sent, or was refused by another partition after it was sent.
    pub failed_at: Option<Timestamp>,
    /// The reason.
    pub error: Option<String>,
    /// The time of an operator's request to send an event now, until a worker has done so.
    pub requested_at: Option<Timestamp>,
    /// The operator who paused, resumed or triggered the schedule last.
    pub actor: Option<String>,
}

/// All schedules, by name.
pub async fn all(conn: &mut Conn<'_>) -> Result<Vec<ScheduleRow>> {
    conn.rows(&sql::SCHEDULES, &[]).await?.iter().map(schedule).collect()
}

/// The schedule of this name.
pub async fn find(conn: &mut Conn<'_>, name: &str) -> Result<Option<ScheduleRow>> {
    conn.rows(&sql::SCHEDULE, &values![name]).await?.first().map(schedule).transpose()
}

/// Adds a schedule. Returns `false` if there is one of this name.
pub async fn add(
    conn: &mut Conn<'_>,
    name: &str,
    definition: &ScheduleDefinition,
    declared_at: Timestamp,
    next: Option<Timestamp>,
) -> Result<bool> {
    let values = defined(name, definition, [declared_at.as_micros().into(), us(next), false.into()]);
    has_row(conn, &sql::SCHEDULE_ADD, &values).await
}

/// Gives a schedule another definition and another next moment. Returns `false` if its next moment is not `was` any more.
pub async fn define(
    conn: &mut Conn<'_>,
    name: &str,
    definition: &ScheduleDefinition,
    declared_at: Timestamp,
    (was, next): (Option<Timestamp>, Option<Timestamp>),
) -> Result<bool> {
    let values = defined(name, definition, [declared_at.as_micros().into(), us(next), us(was)]);
    has_row(conn, &sql::SCHEDULE_DEFINE, &values).await
}

/// Records that a worker declares the schedule.
pub async fn declared(conn: &mut Conn<'_>, name: &str, now: Timestamp) -> Result<()> {
    conn.rows(&sql::SCHEDULE_DECLARED, &values![name, now.as_micros()]).await.map(drop)
}

/// Moves a schedule from one moment to the next. Returns `false` if another process has moved or changed it, or if it is paused.
pub async fn advance(
    conn: &mut Conn<'_>,
    name: &str,
    definition: &ScheduleDefinition,
    from: Timestamp,
    next: Option<Timestamp>,
) -> Result<bool> {
    let values = defined(name, definition, [from.as_micros().into(), us(next)]);
    has_row(conn, &sql::SCHEDULE_ADVANCE, &values).await
}

/// Takes an operator's request. Returns `false` if another process has taken it.
pub async fn take(conn: &mut Conn<'_>, name: &str, definition: &ScheduleDefinition, requested_at: Timestamp) -> Result<bool> {
    let values = defined(name, definition, [requested_at.as_micros().into()]);
    has_row(conn, &sql::SCHEDULE_TAKE, &values).await
}

/// Records the moment that was sent last and the key of its instance.
pub async fn sent(conn: &mut Conn<'_>, name: &str, at: Timestamp, key: &str) -> Result<()> {
    conn.rows(&sql::SCHEDULE_SENT, &values![name, at.as_micros(), key]).await.map(drop)
}

/// Records the last moment that was not sent, and the reason.
pub async fn failed(conn: &mut Conn<'_>, name: &str, at: Timestamp, why: &str) -> Result<()> {
    conn.rows(&sql::SCHEDULE_FAILED, &values![name, at.as_micros(), why]).await.map(drop)
}

/// Pauses a schedule. Returns `false` if there is none of this name that is not paused.
pub async fn pause(conn: &mut Conn<'_>, name: &str, actor: Option<&str>) -> Result<bool> {
    has_row(conn, &sql::SCHEDULE_PAUSE, &values![name, actor]).await
}

/// Resumes a schedule with its next moment. Returns `false` if there is none of this name that is paused.
pub async fn resume(conn: &mut Conn<'_>, name: &str, actor: Option<&str>, next: Option<Timestamp>) -> Result<bool> {
    has_row(conn, &sql::SCHEDULE_RESUME, &values![name, actor, us(next)]).await
}

/// Stores an operator's request to send an event now. Returns `false` if a request waits already.
pub async fn request(conn: &mut Conn<'_>, name: &str, actor: Option<&str>, now: Timestamp) -> Result<bool> {
    has_row(conn, &sql::SCHEDULE_REQUEST, &values![name, actor, now.as_micros()]).await
}

/// Deletes a schedule that no worker has declared since `until`. Returns `false` if there is none.
pub async fn forget(conn: &mut Conn<'_>, name: &str, until: Timestamp) -> Result<bool> {
    has_row(conn, &sql::SCHEDULE_FORGET, &values![name, until.as_micros()]).await
}

async fn has_row(conn: &mut Conn<'_>, sql: &'static Sql, values: &[Value<'_>]) -> Result<bool> {
    Ok(!conn.rows(sql, values).await?.is_empty())
}

/// The name and the definition, followed by other values.
fn defined<'a, const N: usize>(name: &'a str, definition: &'a ScheduleDefinition, others: [Value<'a>; N]) -> Vec<Value<'a>> {
    let ScheduleDefinition { machine, timetable, zone, missed } = definition;
    values![name, machine.as_str(), timetable.as_str(), zone.as_str(), missed.as_str()].into_iter().chain(others).collect()
}

fn us(at: Option<Timestamp>) -> Value<'static> {
    at.map(Timestamp::as_micros).into()
}

fn schedule(row: &Row) -> Result<ScheduleRow> {
    Ok(ScheduleRow {
        name: row.get(0)?,
        definition: ScheduleDefinition { machine: row.get(1)?, timetable: row.get(2)?, zone: row.get(3)?, missed: row.get(4)? },
        declared_at: row.time(5)?,
        next_at: row.time_if_any(6)?,
        paused: row.get(7)?,
        last_at: row.time_if_any(8)?,
        last_key: row.get(9)?,
        failed_at: row.time_if_any(10)?,
        error: row.get(11)?,
        requested_at: row.time_if_any(12)?,
        actor: row.get(13)?,
    })
}
