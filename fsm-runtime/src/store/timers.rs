//! Timers that are due.

use fsm_core::changes::Timer;
use fsm_core::ids::{InstanceId, TimerId};
use fsm_core::time::Timestamp;

use super::claim::{Except, Served, words_of};
use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sql;
use super::values::{Value, values};

/// A timer whose moment has come.
#[derive(Debug, Clone, PartialEq)]
pub struct DueTimer {
    /// The machine of its instance.
    pub machine: String,
    /// The instance's name.
    pub key: String,
    /// The timer.
    pub timer: Timer,
}

/// Timers that were found.
#[derive(Debug, Default)]
pub struct Due {
    /// Those due first first.
    pub timers: Vec<DueTimer>,
    /// Those that cannot be read.
    pub unread: Vec<(TimerId, StoreError)>,
}

/// The timers of the served machine that are due at `now` and not held, but for these: at most `limit`, those due first first. A state or event
/// that this process does not have is left to those that do, and takes no place in `limit`.
pub async fn due(conn: &mut Conn<'_>, served: &Served, now: Timestamp, limit: u32, except: &Except) -> Result<Due> {
    found(conn, &sql::TIMERS_DUE, served, now, limit, &except.timers).await
}

/// Those of these timers that are still there, due at `now` and not held.
pub async fn these(conn: &mut Conn<'_>, served: &Served, now: Timestamp, timers: &[TimerId]) -> Result<Due> {
    let words: Vec<_> = timers.iter().map(|timer| words_of(timer.0)).collect();
    found(conn, &sql::THESE_TIMERS_DUE, served, now, u32::MAX, &words).await
}

async fn found(conn: &mut Conn<'_>, sql: &'static sql::Sql, served: &Served, now: Timestamp, limit: u32, timers: &[String]) -> Result<Due> {
    let values = [
        Value::from(served.machine.as_str()),
        now.as_micros().into(),
        i64::from(limit).into(),
        Value::Words(&served.timed),
        Value::Words(&served.events),
        Value::Words(&served.states),
        Value::Words(timers),
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

/// Whether the instance has another timer beside this one.
pub async fn has_another(conn: &mut Conn<'_>, instance: InstanceId, beside: TimerId) -> Result<bool> {
    let rows = conn.rows(&sql::TIMERS_BESIDE, &values![instance.0]).await?;
    let others = rows.iter().map(|row| row.get(0).map(TimerId)).collect::<Result<Vec<_>>>()?;
    Ok(others.iter().any(|other| *other != beside))
}

fn read(row: &Row) -> Result<DueTimer> {
    Ok(DueTimer { machine: row.get(0)?, key: row.get(1)?, timer: row.timer(2)? })
}

/// The keys of at most `limit` instances of `machine` after `after` that rest in one of these states without a timer of it.
pub async fn missing(
    conn: &mut Conn<'_>,
    machine: &str,
    states: &[String],
    after: InstanceId,
    limit: u32,
) -> Result<Vec<(InstanceId, String)>> {
    let values = [machine.into(), after.0.into(), Value::Words(states), i64::from(limit).into()];
    let rows = conn.rows(&sql::TIMERLESS, &values).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).collect()
}

/// At most `limit` timers of these states of `machine` that are due at `now` and not held.
pub async fn over(conn: &mut Conn<'_>, machine: &str, states: &[String], now: Timestamp, limit: u32) -> Result<Vec<TimerId>> {
    let values = [machine.into(), now.as_micros().into(), Value::Words(states), i64::from(limit).into()];
    let rows = conn.rows(&sql::TIMERS_OVER, &values).await?;
    rows.iter().map(|row| row.get(0).map(TimerId)).collect()
}

/// Deletes timers that nobody fires.
pub async fn delete(conn: &mut Conn<'_>, timers: &[TimerId]) -> Result<()> {
    conn.batch(&sql::TIMER_DELETE, timers.iter().map(|timer| values![timer.0]).collect()).await.map(drop)
}
