//! Claims of due attempts. One statement claims, so that no two sessions get the same attempt.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::commit::outcome::TraceOfCall;
use fsm_core::commit::rows::{RowSnapshot, RowVersion};
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::priority::Kept;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError, sqlite_code};
use super::open::Store;
use super::rows::{POLICY, Row, WITH_NEWEST};
use super::session_log;
use super::shares::Purpose;
use super::sql;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteLog;
use super::values::{Value, values};

/// The parts of one machine that a process can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The machine.
    pub machine: String,
    /// The verbs of the machine that this process has.
    pub verbs: Vec<String>,
    /// The states of the machine that this process has.
    pub states: Vec<String>,
    /// Those of the states that have a timer in this process's code. This process fires the timers of these states.
    pub timed: Vec<String>,
    /// The events that this process has. It delivers delayed sends of these events.
    pub events: Vec<String>,
}

impl Served {
    /// All verbs, states and events of the machine.
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

/// An attempt that a session has claimed.
#[derive(Clone, PartialEq)]
pub struct Claimed {
    /// The instance.
    pub instance: Arc<Instance>,
    /// The attempt. It executes.
    pub attempt: Arc<Attempt>,
    /// The payload of its call.
    pub payload: Vec<u8>,
    /// The error of the attempt before.
    pub last_error: Option<String>,
    /// A snapshot of the instance for the snapshot cache. Only with PostgreSQL, where the row version guards it.
    pub seen: Option<RowSnapshot>,
    /// The reason why the retry policy cannot be decoded. The attempt then fails without running its verb.
    pub policy_error: Option<String>,
    /// The trace context of the call, as far as it is known.
    pub trace: TraceOfCall,
}

/// Shows all fields except the content of the payload.
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = format_args!("{} bytes", self.payload.len());
        f.debug_struct("Claimed").field("instance", &self.instance).field("attempt", &self.attempt).field("payload", &payload).finish()
    }
}

/// Rows that a scan leaves out because they failed before. Each id has 32 hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Except {
    /// Instances whose attempts are left out. Their id is the primary key, and readable where that of a call is not.
    pub instances: Vec<String>,
    /// Timers.
    pub timers: Vec<String>,
}

impl Except {
    /// Leaves out the attempts of these instances, and these timers.
    pub fn of(instances: impl IntoIterator<Item = InstanceId>, timers: impl IntoIterator<Item = TimerId>) -> Except {
        Except {
            instances: instances.into_iter().map(|instance| words_of(instance.0)).collect(),
            timers: timers.into_iter().map(|timer| words_of(timer.0)).collect(),
        }
    }
}

pub(super) fn words_of(id: Uuid) -> String {
    id.simple().to_string()
}

fn all_words_of(all: &[InstanceId]) -> Vec<String> {
    all.iter().map(|instance| words_of(instance.0)).collect()
}

/// The attempts to claim.
#[derive(Debug, Clone, Copy)]
pub enum Which<'w> {
    /// All attempts except those of these instances.
    AllBut(&'w [String]),
    /// All attempts with a normal priority, except those of these instances.
    NormalBut(&'w [String]),
    /// The attempt of this instance only.
    Of(InstanceId),
    /// The attempts of these instances only.
    These(&'w [InstanceId]),
    /// The attempts that wait for this limit, except those of these instances. The transaction has locked the limit.
    Limited(&'w str, &'w [String]),
    /// The attempt of this instance only, which waits for this limit.
    LimitedOf(&'w str, InstanceId),
    /// The attempts of these instances only, each of which waits in the bucket of the same place. The transaction has locked the limit.
    Buckets(&'w [InstanceId], &'w [String]),
    /// The same, only in the row version of the same place. A permit admits each of them.
    Permitted(&'w [InstanceId], &'w [String], &'w [String]),
}

/// The result of a claim.
#[derive(Debug, Default)]
pub struct Claims {
    /// The claimed attempts, by due time.
    pub claimed: Vec<Claimed>,
    /// Attempts that were claimed but cannot be decoded.
    pub unread: Vec<(DueCall, StoreError)>,
}

/// The ids of a due call and its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DueCall {
    /// The call.
    pub call: CallId,
    /// Its instance.
    pub instance: InstanceId,
    /// True if it waits for a limit.
    pub is_limited: bool,
}

impl Claims {
    /// The number of attempts that the session now holds, readable or not.
    pub fn count(&self) -> u32 {
        u32::try_from(self.claimed.len() + self.unread.len()).unwrap_or(u32::MAX)
    }

    /// The claimed attempts of calls with a limit.
    pub fn due(&self) -> impl Iterator<Item = DueCall> {
        self.claimed.iter().map(|claimed| DueCall { call: claimed.attempt.call, instance: claimed.instance.id, is_limited: true })
    }
}

/// The number of places of a claim, and which of them are kept for attempts of a lower priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// The maximum number of attempts.
    pub most: u32,
    /// Those that are kept.
    pub kept: Kept,
}

impl From<u32> for Places {
    /// Places of which none is kept.
    fn from(most: u32) -> Places {
        Places { most, kept: Kept::default() }
    }
}

/// Claims for session `me` attempts that are due at `now`, at most as many as there are places, by priority and due time. With SQLite, `conn` must
/// be in a transaction.
pub async fn claim(
    conn: &mut Conn<'_>,
    me: SessionId,
    served: &Served,
    places: Places,
    now: Timestamp,
    which: Which<'_>,
) -> Result<Claims> {
    let (sql, instances) = which.said();
    let mut rows = conn.rows(sql, &values_of(&me, served, places, now, which, &instances)).await?;
    if !conn.is_postgres() {
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(row.instance_id(0)?);
        }
        let begun: Vec<u8> = ids.iter().flat_map(|id| *id.0.as_bytes()).collect();
        let put = if ids.is_empty() { Vec::new() } else { vec![values![me.0, session_log::next_number(), begun.as_slice()]] };
        conn.put(&sql::LOG_PUT, put.into()).await?;
        rows = conn.batch(&sql::CLAIMED, ids.iter().map(|id| values![id.0]).collect()).await?;
    }
    Ok(all(&rows, which.is_limited()))
}

impl Store {
    /// Like the function [`claim`] of attempts without a limit, and commits.
    pub async fn claim(&self, me: SessionId, served: &Served, places: Places, now: Timestamp, which: Which<'_>) -> Result<Claims> {
        if let Some(mut alone) = self.for_commits().await? {
            return claim(&mut alone.conn(), me, served, places, now, which).await;
        }
        // No decision depends on the columns that a claim writes: the completion of an attempt checks in its guard that the session still
        // holds it.
        #[cfg(feature = "sqlite")]
        {
            let (sql, instances) = which.said();
            let log = SqliteLog { put: &sql::LOG_PUT, session: me, number: session_log::next_number() };
            let values = values_of(&me, served, places, now, which, &instances);
            if let Some(rows) = self.write_and_ask(sql, &values, &sql::CLAIMED, log).await? {
                return Ok(all(&rows, false));
            }
        }
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let claims = claim(&mut tx.conn(), me, served, places, now, which).await?;
        tx.commit().await?;
        Ok(claims)
    }

    /// Releases the attempt that the session has claimed of this instance.
    pub async fn unclaim(&self, me: SessionId, instance: InstanceId) -> Result<()> {
        let mut tx = self.begin().await?;
        tx.conn().rows(&sql::UNCLAIM, &values![instance.0, me.0]).await?;
        tx.commit().await
    }

    /// Checks that the attempt of this instance can be claimed, if it is due: claims it and rolls back. Returns the error if it cannot be
    /// decoded.
    pub async fn try_claim(&self, served: &Served, now: Timestamp, instance: InstanceId) -> Result<()> {
        let mut tx = self.begin().await?;
        let claims = claim(&mut tx.conn(), SessionId(Uuid::nil()), served, 1.into(), now, Which::Of(instance)).await?;
        tx.rollback().await?;
        claims.unread.into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }
}

impl<'w> Which<'w> {
    fn is_limited(self) -> bool {
        matches!(self, Which::Limited(..) | Which::LimitedOf(..) | Which::Buckets(..) | Which::Permitted(..))
    }

    fn said(self) -> (&'static sql::Sql, Cow<'w, [String]>) {
        match self {
            Which::AllBut(except) => (&sql::CLAIM, Cow::Borrowed(except)),
            Which::NormalBut(except) => (&sql::CLAIM_NORMAL, Cow::Borrowed(except)),
            Which::Of(instance) => (&sql::CLAIM_THESE, Cow::Owned(vec![words_of(instance.0)])),
            Which::These(all) => (&sql::CLAIM_THESE, Cow::Owned(all_words_of(all))),
            Which::Buckets(all, _) => (&sql::CLAIM_BUCKETS, Cow::Owned(all_words_of(all))),
            Which::Permitted(all, ..) => (&sql::CLAIM_PERMITTED, Cow::Owned(all_words_of(all))),
            Which::Limited(_, except) => (&sql::CLAIM_LIMITED, Cow::Borrowed(except)),
            Which::LimitedOf(_, instance) => (&sql::CLAIM_LIMITED_THESE, Cow::Owned(vec![words_of(instance.0)])),
        }
    }
}

/// The calls that a claim would get, by due time, each with the key of its instance.
pub async fn claimable(
    conn: &mut Conn<'_>,
    served: &Served,
    limit: u32,
    now: Timestamp,
    which: Which<'_>,
) -> Result<Vec<(DueCall, Option<String>)>> {
    let (sql, except, name) = match which {
        Which::Limited(name, except) => (&sql::CLAIMABLE_LIMITED, except, Some(name)),
        Which::AllBut(except) => (&sql::CLAIMABLE, except, None),
        Which::NormalBut(_) | Which::Of(_) | Which::These(_) | Which::LimitedOf(..) | Which::Buckets(..) | Which::Permitted(..) => {
            return Ok(Vec::new());
        }
    };
    let machine = served.machine.as_str();
    let values = values![machine, Value::Texts(&served.verbs), now.as_micros(), i64::from(limit), Value::Texts(except), name];
    let rows = conn.rows(sql, &values[..if name.is_some() { 6 } else { 5 }]).await?;
    let is_limited = name.is_some();
    let due = |row: &Row| Some(DueCall { call: row.call_id(0).ok()?, instance: row.instance_id(1).ok()?, is_limited });
    Ok(rows.iter().filter_map(|row| Some((due(row)?, row.get(2).ok().flatten()))).collect())
}

/// True if a statement about many rows may have failed because of one of them. Otherwise the cause is the connection, the server or the
/// whole database.
pub fn may_be_a_rows(error: &StoreError) -> bool {
    /// Connection, transaction state or read-only, authentication, rollback, resources, object state, operator intervention, system,
    /// privilege.
    const WHOLE: [&str; 9] = ["08", "25", "28", "40", "53", "55", "57", "58", "42501"];
    /// Busy, locked, no memory, read-only, interrupted, disk I/O, full, cannot open, lock protocol, no large files, not authorised, not a
    /// database.
    const WHOLE_IN_SQLITE: [i64; 12] = [5, 6, 7, 8, 9, 10, 13, 14, 15, 22, 23, 26];
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::Database(sqlx::Error::Database(error)) => match sqlite_code(&**error) {
            Some(code) => !WHOLE_IN_SQLITE.contains(&(code & 0xff)),
            None => !error.code().is_some_and(|code| WHOLE.iter().any(|class| code.starts_with(class))),
        },
        _ => false,
    }
}

/// The parameters of the statement for `which`, which names these instances.
fn values_of<'a>(
    me: &SessionId,
    served: &'a Served,
    places: Places,
    now: Timestamp,
    which: Which<'a>,
    instances: &'a [String],
) -> Vec<Value<'a>> {
    let (machine, verbs, instances) = (served.machine.as_str(), Value::Texts(&served.verbs), Value::Texts(instances));
    let mut values = values![machine, me.0, verbs, now.as_micros(), i64::from(places.most), instances, session_log::next_number()].to_vec();
    if let Which::AllBut(_) | Which::Limited(..) = which {
        values.extend(values![i64::from(places.kept.normal), i64::from(places.kept.low)]);
    }
    if let Which::Limited(name, _) | Which::LimitedOf(name, _) = which {
        values.push(name.into());
    }
    if let Which::Buckets(_, buckets) | Which::Permitted(_, buckets, _) = which {
        values.push(Value::Texts(buckets));
    }
    if let Which::Permitted(_, _, row_versions) = which {
        values.push(Value::Texts(row_versions));
    }
    values
}

/// Decodes each row separately, so that a row that cannot be decoded does not stop the others.
fn all(rows: &[Row], is_limited: bool) -> Claims {
    let mut claims = Claims::default();
    for row in rows {
        match read(row) {
            Ok(claimed) => claims.claimed.push(claimed),
            Err(why) => {
                let (instance, call) = row.ids_of_unread();
                claims.unread.push((DueCall { call, instance, is_limited }, why));
            }
        }
    }
    claims.claimed.sort_by_key(|claimed| claimed.attempt.scheduled_at);
    claims
}

fn read(row: &Row) -> Result<Claimed> {
    // A deleted payload reads as empty bytes: its attempt fails, not the whole claim.
    let payload = row.get::<Option<Vec<u8>>>(WITH_NEWEST)?.unwrap_or_default();
    let policy_error = row.policy(POLICY).err().map(|why| format!("the retry policy cannot be read: {why}"));
    let instance = Arc::new(row.instance(0)?);
    let attempt = row.newest(&instance, 0)?.map(Arc::new);
    let attempt = attempt.ok_or_else(|| StoreError::Corrupt { what: format!("instance {} executes no call", instance.id) })?;
    let seen = match row.is_postgres() {
        true => Some(RowSnapshot {
            instance: Arc::clone(&instance),
            newest: Some(Arc::clone(&attempt)),
            has_timer: row.get(WITH_NEWEST + 2)?,
            row_version: RowVersion::Row,
        }),
        false => None,
    };
    Ok(Claimed { instance, attempt, payload, last_error: row.get(WITH_NEWEST + 1)?, seen, policy_error, trace: TraceOfCall::Stored })
}

/// The time at which the machine's next attempt or timer is due, without those in `except`; `None` if nothing is scheduled.
pub async fn next_due(conn: &mut Conn<'_>, served: &Served, except: &Except) -> Result<Option<Timestamp>> {
    let machine = Value::from(served.machine.as_str());
    let calls = conn.rows(&sql::NEXT_CALL, &[machine, Value::Texts(&served.verbs), Value::Texts(&except.instances)]).await?;
    let [timed, events, states] = [&served.timed, &served.events, &served.states].map(|words| Value::Texts(words));
    let timers = conn.rows(&sql::NEXT_TIMER, &[machine, timed, events, states, Value::Texts(&except.timers)]).await?;
    let due = calls.iter().chain(&timers).map(|row| row.time(0)).collect::<Result<Vec<_>>>()?;
    Ok(due.into_iter().min())
}
