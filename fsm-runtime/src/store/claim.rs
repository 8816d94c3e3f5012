//! Taking attempts that are due: one statement, so that no two sessions get the same one.

use std::fmt;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::ids::SessionId;
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::lock::Seen;
use super::open::Store;
use super::rows::Row;
use super::sql;
use super::values::{Value, values};
use super::write::Stamp;

/// What a process can run of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The machine.
    pub machine: String,
    /// Its verbs that this process has.
    pub verbs: Vec<String>,
    /// Its states that this process has.
    pub states: Vec<String>,
    /// Those of them that have a timer in this process's code: these timers are its own to fire.
    pub timed: Vec<String>,
    /// The events that this process has: it delivers those whose time has come.
    pub events: Vec<String>,
}

/// An attempt that a session was given.
#[derive(Clone, PartialEq)]
pub struct Claimed {
    /// Whose it is.
    pub instance: Arc<Instance>,
    /// The attempt, executing.
    pub attempt: Arc<Attempt>,
    /// The payload of its call.
    pub payload: Vec<u8>,
    /// Why the attempt before it failed.
    pub last_error: Option<String>,
    /// How its instance was seen with it, where something shows whether that is still so.
    pub seen: Option<Seen>,
    /// What of its row cannot be read: then it fails without its verb.
    pub fault: Option<String>,
}

/// All but what the payload says.
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = format_args!("{} bytes", self.payload.len());
        f.debug_struct("Claimed").field("instance", &self.instance).field("attempt", &self.attempt).field("payload", &payload).finish()
    }
}

/// Gives the session `me` at most `limit` of the attempts that are due at `now`, those due first first. In SQLite `conn` is in a transaction.
pub async fn claim(conn: &mut Conn<'_>, me: SessionId, served: &Served, limit: u32, now: Timestamp) -> Result<Vec<Claimed>> {
    let mut rows = conn.rows(&sql::CLAIM, &values_of(&me, served, limit, now)).await?;
    if !conn.is_postgres() {
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push((row.call_id(0)?, row.count(1)?));
        }
        rows = conn.batch(&sql::CLAIMED, keys.iter().map(|(call, number)| values![call.0, i64::from(*number)]).collect()).await?;
    }
    all(&rows)
}

impl Store {
    /// The same, committed.
    pub async fn claim(&self, me: SessionId, served: &Served, limit: u32, now: Timestamp) -> Result<Vec<Claimed>> {
        if let Some(mut alone) = self.for_commits().await? {
            return claim(&mut alone.conn(), me, served, limit, now).await;
        }
        // A claim writes no instance, and the end of an attempt looks for itself whether it is still held.
        if let Some(rows) = self.write_and_ask(&sql::CLAIM, &values_of(&me, served, limit, now), &sql::CLAIMED).await? {
            return all(&rows);
        }
        let mut tx = self.begin().await?;
        let claimed = claim(&mut tx.conn(), me, served, limit, now).await?;
        tx.commit().await?;
        Ok(claimed)
    }
}

fn values_of<'a>(me: &SessionId, served: &'a Served, limit: u32, now: Timestamp) -> [Value<'a>; 5] {
    [served.machine.as_str().into(), me.0.into(), Value::Words(&served.verbs), now.as_micros().into(), i64::from(limit).into()]
}

fn all(rows: &[Row]) -> Result<Vec<Claimed>> {
    let mut claimed = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    claimed.sort_by_key(|claimed| claimed.attempt.scheduled_at);
    Ok(claimed)
}

fn read(row: &Row) -> Result<Claimed> {
    // A payload that is gone is one that cannot be read: a failed attempt, not a failed claim.
    let payload = row.get::<Option<Vec<u8>>>(37)?.unwrap_or_default();
    let fault = row.policy(16 + 14).err().map(|why| format!("the retry policy cannot be read: {why}"));
    let instance = Arc::new(row.instance(0)?);
    let seen = match row {
        Row::Postgres(_) => {
            let stamp = Stamp::Row { xmin: row.get(40)?, updated_at: instance.updated_at };
            Some(Seen { instance: Arc::clone(&instance), has_timer: row.get(39)?, stamp })
        }
        Row::Sqlite(..) | Row::Lent(_) => None,
    };
    Ok(Claimed { instance, attempt: Arc::new(row.attempt(16)?), payload, last_error: row.get(38)?, seen, fault })
}

/// When the next attempt or timer of these machines is due; `None` when nothing is scheduled.
pub async fn next_due(conn: &mut Conn<'_>, served: &[Served]) -> Result<Option<Timestamp>> {
    let mut next: Option<Timestamp> = None;
    for served in served {
        let calls = conn.rows(&sql::NEXT_CALL, &[served.machine.as_str().into(), Value::Words(&served.verbs)]).await?;
        let values =
            [served.machine.as_str().into(), Value::Words(&served.timed), Value::Words(&served.events), Value::Words(&served.states)];
        let timers = conn.rows(&sql::NEXT_TIMER, &values).await?;
        for row in calls.iter().chain(&timers) {
            let due = row.time(0)?;
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    Ok(next)
}
