//! Taking attempts that are due: one statement, so that no two sessions get the same one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::ids::{CallId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::lock::RowSnapshot;
use super::open::Store;
use super::rows::{ATTEMPT_COLUMNS, INSTANCE_COLUMNS, Row};
use super::shares::Purpose;
use super::sql;
use super::values::{Value, values};
use super::write::RowVersion;

/// The place of the first column behind the instance and the attempt.
const JOINED: usize = INSTANCE_COLUMNS + ATTEMPT_COLUMNS;

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

impl Served {
    /// All of the machine.
    pub fn of(machine: &Machine) -> Served {
        let mut verbs: Vec<_> = machine.verbs.iter().map(|verb| verb.name.clone()).collect();
        verbs.sort();
        let states: Vec<_> = machine.states().map(str::to_owned).collect();
        let timed = states.iter().filter(|state| machine.timer(state).is_some()).cloned().collect();
        let mut events: Vec<_> = machine.edges.iter().map(|edge| edge.event.clone()).collect();
        events.sort();
        events.dedup();
        Served { machine: machine.name.clone(), verbs, states, timed, events }
    }
}

/// An attempt that a session was given.
#[derive(Clone, PartialEq)]
pub struct Claimed {
    /// The instance.
    pub instance: Arc<Instance>,
    /// The attempt, executing.
    pub attempt: Arc<Attempt>,
    /// The payload of its call.
    pub payload: Vec<u8>,
    /// Why the attempt before it failed.
    pub last_error: Option<String>,
    /// How its instance was seen with it, where something shows whether that is still so.
    pub seen: Option<RowSnapshot>,
    /// What of its row cannot be read: then it fails without its verb.
    pub policy_error: Option<String>,
}

/// All but what the payload says.
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = format_args!("{} bytes", self.payload.len());
        f.debug_struct("Claimed").field("instance", &self.instance).field("attempt", &self.attempt).field("payload", &payload).finish()
    }
}

/// Rows that a look leaves out, for they failed before. Each as 32 hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Except {
    /// The calls of attempts.
    pub calls: Vec<String>,
    /// Timers.
    pub timers: Vec<String>,
}

impl Except {
    /// These rows.
    pub fn of(calls: impl IntoIterator<Item = CallId>, timers: impl IntoIterator<Item = TimerId>) -> Except {
        Except {
            calls: calls.into_iter().map(|call| words_of(call.0)).collect(),
            timers: timers.into_iter().map(|timer| words_of(timer.0)).collect(),
        }
    }
}

pub(super) fn words_of(id: Uuid) -> String {
    id.simple().to_string()
}

/// Which attempts are claimed.
#[derive(Debug, Clone, Copy)]
pub enum Which<'w> {
    /// Those of all calls but these.
    AllBut(&'w [String]),
    /// Those of this call alone.
    Call(CallId),
}

/// What a claim gave.
#[derive(Debug, Default)]
pub struct Claims {
    /// The attempts, those due first first.
    pub claimed: Vec<Claimed>,
    /// Attempts that are the session's now, and that cannot be read.
    pub unread: Vec<(CallId, StoreError)>,
}

/// Gives the session `me` at most `limit` of the attempts that are due at `now`, those due first first. In SQLite `conn` is in a transaction.
pub async fn claim(conn: &mut Conn<'_>, me: SessionId, served: &Served, limit: u32, now: Timestamp, which: Which<'_>) -> Result<Claims> {
    let (sql, calls) = which.said();
    let mut rows = conn.rows(sql, &values_of(&me, served, limit, now, &calls)).await?;
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
    pub async fn claim(&self, me: SessionId, served: &Served, limit: u32, now: Timestamp, which: Which<'_>) -> Result<Claims> {
        if let Some(mut alone) = self.for_commits().await? {
            return claim(&mut alone.conn(), me, served, limit, now, which).await;
        }
        // A claim writes no instance, and the end of an attempt looks for itself whether it is still held.
        let (sql, calls) = which.said();
        if let Some(rows) = self.write_and_ask(sql, &values_of(&me, served, limit, now, &calls), &sql::CLAIMED).await? {
            return all(&rows);
        }
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let claims = claim(&mut tx.conn(), me, served, limit, now, which).await?;
        tx.commit().await?;
        Ok(claims)
    }

    /// Takes back what the session claimed of this call.
    pub async fn unclaim(&self, me: SessionId, call: CallId) -> Result<()> {
        let mut tx = self.begin().await?;
        tx.conn().rows(&sql::UNCLAIM, &values![call.0, me.0]).await?;
        tx.commit().await
    }

    /// Claims the attempts of this call, if they are due, and takes that back: whether they can be.
    pub async fn try_claim(&self, served: &Served, now: Timestamp, call: CallId) -> Result<()> {
        let mut tx = self.begin().await?;
        let claims = claim(&mut tx.conn(), SessionId(Uuid::nil()), served, 1, now, Which::Call(call)).await?;
        tx.rollback().await?;
        claims.unread.into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }
}

impl<'w> Which<'w> {
    fn said(self) -> (&'static sql::Sql, Cow<'w, [String]>) {
        match self {
            Which::AllBut(calls) => (&sql::CLAIM, Cow::Borrowed(calls)),
            Which::Call(call) => (&sql::CLAIM_THESE, Cow::Owned(vec![words_of(call.0)])),
        }
    }
}

/// The calls of the attempts that a claim would give, those due first first, with the key of each instance.
pub async fn claimable(
    conn: &mut Conn<'_>,
    served: &Served,
    limit: u32,
    now: Timestamp,
    except: &[String],
) -> Result<Vec<(CallId, Option<String>)>> {
    let nobody = SessionId(Uuid::nil());
    let rows = conn.rows(&sql::CLAIMABLE, &values_of(&nobody, served, limit, now, except)).await?;
    Ok(rows.iter().filter_map(|row| Some((row.call_id(0).ok()?, row.get(1).ok().flatten()))).collect())
}

/// Whether a statement about many rows may have failed because of one of them. Else the connection, the server or the whole database is not
/// well.
pub fn may_be_a_rows(error: &StoreError) -> bool {
    /// Connection, rollback for others' sake, read-only or a transaction's state, no right, no room, not now, stopped, the machine.
    const WHOLE: [&str; 9] = ["08", "25", "28", "40", "53", "55", "57", "58", "42501"];
    /// Busy, locked, no memory, read-only, interrupted, the disk, full, cannot open, the protocol of locks, no right, not a database.
    const WHOLE_IN_SQLITE: [i64; 12] = [5, 6, 7, 8, 9, 10, 13, 14, 15, 22, 23, 26];
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::Database(sqlx::Error::Database(error)) => {
            let code = error.code().unwrap_or_default();
            let is_postgres = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some();
            match code.parse::<i64>() {
                Ok(number) if !is_postgres => !WHOLE_IN_SQLITE.contains(&(number & 0xff)),
                _ => !WHOLE.iter().any(|class| code.starts_with(class)),
            }
        }
        _ => false,
    }
}

fn values_of<'a>(me: &SessionId, served: &'a Served, limit: u32, now: Timestamp, calls: &'a [String]) -> [Value<'a>; 6] {
    [
        served.machine.as_str().into(),
        me.0.into(),
        Value::Words(&served.verbs),
        now.as_micros().into(),
        i64::from(limit).into(),
        Value::Words(calls),
    ]
}

/// Each by itself: one that cannot be read keeps no other from being run.
fn all(rows: &[Row]) -> Result<Claims> {
    let mut claims = Claims::default();
    for row in rows {
        match read(row) {
            Ok(claimed) => claims.claimed.push(claimed),
            Err(why) => claims.unread.push((row.call_id(INSTANCE_COLUMNS)?, why)),
        }
    }
    claims.claimed.sort_by_key(|claimed| claimed.attempt.scheduled_at);
    Ok(claims)
}

fn read(row: &Row) -> Result<Claimed> {
    // A payload that is gone is one that cannot be read: a failed attempt, not a failed claim.
    let payload = row.get::<Option<Vec<u8>>>(JOINED)?.unwrap_or_default();
    let policy_error = row.policy(INSTANCE_COLUMNS + 14).err().map(|why| format!("the retry policy cannot be read: {why}"));
    let instance = Arc::new(row.instance(0)?);
    let seen = match row {
        Row::Postgres(_) => {
            let row_version = RowVersion::Row { xmin: row.get(JOINED + 3)?, updated_at: instance.updated_at };
            Some(RowSnapshot { instance: Arc::clone(&instance), has_timer: row.get(JOINED + 2)?, row_version })
        }
        Row::Sqlite(..) | Row::UserSqlite(_) => None,
    };
    Ok(Claimed {
        instance,
        attempt: Arc::new(row.attempt(INSTANCE_COLUMNS)?),
        payload,
        last_error: row.get(JOINED + 1)?,
        seen,
        policy_error,
    })
}

/// When the next attempt or timer of the machine is due, but for these; `None` when nothing is scheduled.
pub async fn next_due(conn: &mut Conn<'_>, served: &Served, except: &Except) -> Result<Option<Timestamp>> {
    let machine = Value::from(served.machine.as_str());
    let calls = conn.rows(&sql::NEXT_CALL, &[machine, Value::Words(&served.verbs), Value::Words(&except.calls)]).await?;
    let [timed, events, states] = [&served.timed, &served.events, &served.states].map(|words| Value::Words(words));
    let timers = conn.rows(&sql::NEXT_TIMER, &[machine, timed, events, states, Value::Words(&except.timers)]).await?;
    let due = calls.iter().chain(&timers).map(|row| row.time(0)).collect::<Result<Vec<_>>>()?;
    Ok(due.into_iter().min())
}
