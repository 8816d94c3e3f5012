//! Timers that are due.

use fsm_core::changes::Timer;
use fsm_core::ids::{InstanceId, TimerId};
use fsm_core::time::Timestamp;

use super::claim::Served;
use super::conn::Conn;
use super::error::Result;
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

/// The timers of the served machines that are due at `now` and not held: at most `limit` of each machine, those due first first. A machine,
/// state or event that this process does not have is left to those that do, and takes no place in `limit`.
pub async fn due(conn: &mut Conn<'_>, served: &[Served], now: Timestamp, limit: u32) -> Result<Vec<DueTimer>> {
    let mut due = Vec::new();
    for served in served {
        let values = [
            Value::from(served.machine.as_str()),
            now.as_micros().into(),
            i64::from(limit).into(),
            Value::Words(&served.timed),
            Value::Words(&served.events),
            Value::Words(&served.states),
        ];
        for row in conn.rows(&sql::TIMERS_DUE, &values).await? {
            due.push(DueTimer { machine: row.get(0)?, key: row.get(1)?, timer: row.timer(2)? });
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
