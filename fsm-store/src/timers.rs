//! Due timers.

use fsm_core::changes::Timer;
use fsm_core::ids::{InstanceId, TimerId};
use fsm_core::time::Timestamp;

use super::claim::{Except, Served, words_of};
use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sql;
use super::values::{Value, values};

/// A timer that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct DueTimer {
    /// The machine of its instance.
    pub machine: String,
    /// The key of its instance.
    pub key: String,
    /// The timer.
    pub timer: Timer,
}

/// The result of a scan for due timers.
#[derive(Debug, Default)]
pub struct Due {
    /// The timers, by due time.
    pub timers: Vec<DueTimer>,
    /// The timers that cannot be decoded.
    pub unread: Vec<(TimerId, StoreError)>,
}

/// At most `limit` timers of the served machine that are due at `now`, not held and not in `except`, by due time. A timer with a state or
/// an event that this process does not have is left to other processes and does not count towards `limit`.
pub async fn due(conn: &mut Conn<'_>, served: &Served, now: Timestamp, limit: u32, except: &Except) -> Result<Due> {
    found(conn, &sql::TIMERS_DUE, served, now, limit, &except.timers).await
}

/// Those of these timers that still exist, are due at `now` and are not held.
pub async fn these(conn: &mut Conn<'_>, served: &Served, now: Timestamp, timers: &[TimerId]) -> Result<Due> {
    let words: Vec<_> = timers.iter().map(|timer| words_of(timer.0)).collect();
    found(conn, &sql::THESE_TIMERS_DUE, served, now, u32::MAX, &words).await
}

async fn found(conn: &mut Conn<'_>, sql: &'static sql::Sql, served: &Served, now: Timestamp, limit: u32, timers: &[String]) -> Result<Due> {
    let values = [
        Value::from(served.machine.as_str()),
        now.as_micros().into(),
        i64::from(limit).into(),
        Value::Texts(&served.timed),
        Value::Texts(&served.events),
        Value::Texts(&served.states),
        Value::Texts(timers),
    ];
    let mut due = Due::default();
    for row in conn.rows(sql, &values).await? {
        match read(&row) {
            Ok(timer) => due.timers.push(timer),
            Err(why) => due.unread.push((TimerId(row.get(2)?), why)),
        }
    }
    Ok(due)
}

/// True if the instance has a timer other than `beside`.
pub async fn has_another(conn: &mut Conn<'_>, instance: InstanceId, beside: TimerId) -> Result<bool> {
    let rows = conn.rows(&sql::TIMERS_BESIDE, &values![instance.0]).await?;
    let others = rows.iter().map(|row| row.get(0).map(TimerId)).collect::<Result<Vec<_>>>()?;
    Ok(others.iter().any(|other| *other != beside))
}

fn read(row: &Row) -> Result<DueTimer> {
    Ok(DueTimer { machine: row.get(0)?, key: row.get(1)?, timer: row.timer(2)? })
}

/// At most `limit` timers of these states of `machine` after `after` that are due at `now` and not held, with their times, in order.
pub async fn over(
    conn: &mut Conn<'_>,
    machine: &str,
    states: &[String],
    now: Timestamp,
    limit: u32,
    after: (TimerId, Timestamp),
) -> Result<Vec<(TimerId, Timestamp)>> {
    let (last, due_at) = (after.0.0, after.1.as_micros());
    let values = [machine.into(), now.as_micros().into(), Value::Texts(states), i64::from(limit).into(), due_at.into(), last.into()];
    let rows = conn.rows(&sql::TIMERS_OVER, &values).await?;
    // A timer whose id cannot be decoded cannot be deleted.
    Ok(rows.iter().filter_map(|row| Some((TimerId(row.get(0).ok()?), row.time(1).ok()?))).collect())
}

/// Deletes timers that no process fires.
pub async fn delete(conn: &mut Conn<'_>, timers: &[TimerId]) -> Result<()> {
    conn.batch(&sql::TIMER_DELETE, timers.iter().map(|timer| values![timer.0]).collect()).await.map(drop)
}
