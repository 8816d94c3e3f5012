//! Timers that are due.

use fsm_core::changes::Timer;
use fsm_core::time::Timestamp;

use super::claim::Served;
use super::conn::{Conn, Value};
use super::error::Result;
use super::sql;

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
