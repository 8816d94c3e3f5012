//! What an operator looks at across instances: what failed, what comes next, who works.

use std::collections::HashMap;

use fsm_core::call::AttemptState;
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::time::{Timestamp, serialize_text};
use serde::Serialize;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::values;

/// The most waiting events of one instance that are read with it.
const MOST_WAITING: i64 = 100;

/// An event of an inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InboxEvent {
    /// The position in the inbox.
    pub position: i64,
    /// The id of the call that the event becomes when it is taken.
    pub call: CallId,
    /// The event type.
    pub event: String,
    /// The time since which it waits.
    #[serde(serialize_with = "serialize_text")]
    pub since: Timestamp,
}

/// A time at which an event is delivered to an instance: the timer of a state, or a delayed send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PendingTimer {
    /// The id.
    pub id: TimerId,
    /// The state that the timer belongs to; `None` for a delayed send.
    pub state: Option<String>,
    /// What is delivered.
    pub event: String,
    /// When.
    #[serde(serialize_with = "serialize_text")]
    pub due_at: Timestamp,
    /// It was due, and waits for the end of a transition.
    pub held: bool,
}

/// An instance in error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Its identity.
    pub id: InstanceId,
    /// The user's name for it.
    pub key: String,
    /// Where it stands.
    pub state: Option<String>,
    /// The verb that failed.
    pub verb: Option<String>,
    /// What it failed with.
    pub error: String,
    /// Since when it is in error.
    pub since: Timestamp,
}

/// An instance whose open attempt follows one that failed or was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    /// The instance, the verb, and the error of the attempt before; since when that has ended.
    pub failing: Failing,
    /// The number of the open attempt.
    pub number: u32,
    /// How many attempts there are in all; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// When the open attempt may start, or might have.
    pub next_at: Timestamp,
    /// It executes.
    pub executes: bool,
}

/// An event that was accepted and not taken: it did not fit when its turn came, or its receiver refused what a verb sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedEvent {
    /// The call that it would have begun.
    pub call: CallId,
    /// The key of the receiver; where there is no such instance, of the sender.
    pub key: String,
    /// When it was rejected.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
}

/// How many events a machine rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectedCount {
    /// How many, as far as they were counted.
    pub events: u64,
    /// When the last of them was rejected.
    pub last_at: Option<Timestamp>,
}

/// Something that happens by itself once its time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coming {
    /// The machine.
    pub machine: String,
    /// The instance's name.
    pub key: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: ToCome,
}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToCome {
    /// An attempt may start.
    Attempt {
        /// What runs.
        verb: String,
        /// What it is given.
        event: String,
        /// From 1.
        number: u32,
        /// How many attempts there are in all; `None` is unlimited.
        max_attempts: Option<u32>,
    },
    /// An attempt is lost, and its call goes on, as soon as a process of its machine is alive: its worker's lease ended then.
    Lapsed {
        /// What ran.
        verb: String,
        /// What it was given.
        event: String,
        /// From 1.
        number: u32,
        /// How many attempts there are in all; `None` is unlimited.
        max_attempts: Option<u32>,
    },
    /// An event is delivered.
    Event {
        /// The state whose timer it is; `None` is a delayed send.
        state: Option<String>,
        /// The event type.
        event: String,
    },
}

/// A process that works, or that did and has not been buried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its session.
    pub session: SessionId,
    /// The host it runs on, as it said.
    pub host: String,
    /// Its process there.
    pub pid: i64,
    /// Since when.
    pub started_at: Timestamp,
    /// Until when it is believed.
    pub lease_until: Timestamp,
    /// How many attempts it executes.
    pub executing: u64,
}

/// What waits for an instance, in order.
pub async fn inbox(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<InboxEvent>> {
    let rows = conn.rows(&sql::WAITING, &values![instance.0]).await?;
    rows.iter()
        .map(|row| Ok(InboxEvent { position: row.get(0)?, call: row.call_id(1)?, event: row.get(2)?, since: row.time(3)? }))
        .collect()
}

/// The timers of an instance, the first due first.
pub async fn timers(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<PendingTimer>> {
    let rows = conn.rows(&sql::TIMERS_SET, &values![instance.0]).await?;
    rows.iter()
        .map(|row| {
            let id = TimerId(row.get(0)?);
            Ok(PendingTimer { id, state: row.get(1)?, event: row.get(2)?, due_at: row.time(3)?, held: row.get(4)? })
        })
        .collect()
}

/// The first timers of each of these instances, the first due first: at most 100 of each, without wake-ups.
pub async fn timers_of(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<HashMap<InstanceId, Vec<PendingTimer>>> {
    let mut timers: HashMap<_, Vec<_>> = HashMap::new();
    for row in conn.batch(&sql::PENDING_TIMERS, instances.iter().map(|id| values![id.0]).collect()).await? {
        let id = TimerId(row.get(1)?);
        let timer = PendingTimer { id, state: row.get(2)?, event: row.get(3)?, due_at: row.time(4)?, held: row.get(5)? };
        timers.entry(row.instance_id(0)?).or_default().push(timer);
    }
    Ok(timers)
}

/// The events that wait for each of these instances, in order: at most 100 of each.
pub async fn inboxes_of(conn: &mut Conn<'_>, instances: &[&Instance]) -> Result<HashMap<InstanceId, Vec<InboxEvent>>> {
    let range = |instance: &&Instance| {
        let until = instance.inbox_head.saturating_add(MOST_WAITING).min(instance.inbox_tail);
        values![instance.id.0, instance.inbox_head, until]
    };
    let mut inboxes: HashMap<_, Vec<_>> = HashMap::new();
    for row in conn.batch(&sql::PENDING_EVENTS, instances.iter().map(range).collect()).await? {
        let event = InboxEvent { position: row.get(1)?, call: row.call_id(2)?, event: row.get(3)?, since: row.time(4)? };
        inboxes.entry(row.instance_id(0)?).or_default().push(event);
    }
    Ok(inboxes)
}

/// The instances of a machine in error before `before`, the one that was created last first.
pub async fn failing(conn: &mut Conn<'_>, machine: &str, before: Option<InstanceId>, limit: u32) -> Result<Vec<Failing>> {
    let before = before.map_or(Uuid::max(), |before| before.0);
    let rows = conn.rows(&sql::FAILING, &values![machine, before, i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            let error = row.get::<Option<String>>(4)?.unwrap_or_default();
            Ok(Failing { id: row.instance_id(0)?, key: row.get(1)?, state: row.get(2)?, verb: row.get(3)?, error, since: row.time(5)? })
        })
        .collect()
}

/// The instances of a machine whose open attempt follows a failed one, the first due first: at most `limit`, among the first `look_at` that
/// are scheduled and all that execute.
pub async fn retrying(conn: &mut Conn<'_>, machine: &str, limit: u32, look_at: u32) -> Result<Vec<Retrying>> {
    let rows = conn.rows(&sql::RETRYING, &values![machine, i64::from(limit), i64::from(look_at)]).await?;
    rows.iter()
        .map(|row| {
            let number = row.count(7)?;
            let error = row.get::<Option<String>>(4)?.unwrap_or_else(|| "the attempt was lost: its worker died".to_owned());
            let failing =
                Failing { id: row.instance_id(0)?, key: row.get(1)?, state: row.get(2)?, verb: row.get(3)?, error, since: row.time(5)? };
            let executes = row.word::<AttemptState>(10)? == AttemptState::Executing;
            Ok(Retrying { failing, number, max_attempts: most(row, 8, number)?, next_at: row.time(9)?, executes })
        })
        .collect()
}

/// The rejected events of a machine of calls made before `before`, the newest first.
pub async fn rejected(conn: &mut Conn<'_>, machine: &str, before: Option<CallId>, limit: u32) -> Result<Vec<RejectedEvent>> {
    let before = before.map_or(Uuid::max(), |before| before.0);
    let rows = conn.rows(&sql::REJECTED, &values![machine, before, i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            let reason = row.get::<Option<String>>(3)?.unwrap_or_default();
            Ok(RejectedEvent { call: row.call_id(0)?, key: row.get(1)?, at: row.time(2)?, reason })
        })
        .collect()
}

/// How many events a machine rejected, counted no further than `most`, the newest first.
pub async fn rejected_count(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<RejectedCount> {
    let rows = conn.rows(&sql::COUNT_REJECTED, &values![machine, i64::from(most)]).await?;
    let Some(row) = rows.first() else { return Ok(RejectedCount::default()) };
    Ok(RejectedCount { events: number(row.get(0)?), last_at: row.time_if_any(1)? })
}

/// How many attempts there are in all, by how many are left at place `at` after this one.
fn most(row: &Row, at: usize, number: u32) -> Result<Option<u32>> {
    let is_bounded = row.get::<Option<i64>>(at)?.is_some();
    is_bounded.then(|| row.count(at).map(|left| number.saturating_add(left))).transpose()
}

/// What comes next in a machine at `now`, in order.
pub async fn to_come(conn: &mut Conn<'_>, machine: &str, now: Timestamp, limit: u32) -> Result<Vec<Coming>> {
    let coming = |key, at, what| Coming { machine: machine.to_owned(), key, at, what };
    let mut all = Vec::new();
    for row in conn.rows(&sql::CALLS_TO_COME, &values![machine, i64::from(limit)]).await? {
        let number = row.count(3)?;
        let max_attempts = most(&row, 4, number)?;
        all.push(coming(row.get(0)?, row.time(5)?, ToCome::Attempt { verb: row.get(1)?, event: row.get(2)?, number, max_attempts }));
    }
    for row in conn.rows(&sql::LAPSED, &values![machine, now.as_micros(), i64::from(limit)]).await? {
        let number = row.count(3)?;
        let max_attempts = most(&row, 4, number)?;
        all.push(coming(row.get(0)?, row.time(5)?, ToCome::Lapsed { verb: row.get(1)?, event: row.get(2)?, number, max_attempts }));
    }
    for row in conn.rows(&sql::TIMERS_TO_COME, &values![machine, i64::from(limit)]).await? {
        all.push(coming(row.get(0)?, row.time(3)?, ToCome::Event { state: row.get(1)?, event: row.get(2)? }));
    }
    all.sort_by_key(|coming| coming.at);
    all.truncate(limit as usize);
    Ok(all)
}

/// Every process that works, and those that did and have not been buried.
pub async fn workers(conn: &mut Conn<'_>) -> Result<Vec<Worker>> {
    let rows = conn.rows(&sql::SESSIONS, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(Worker {
                session: SessionId(row.get(0)?),
                host: row.get(1)?,
                pid: row.get(2)?,
                started_at: row.time(3)?,
                lease_until: row.time(4)?,
                executing: number(row.get(5)?),
            })
        })
        .collect()
}

/// How many instances a machine has, and how many of them are in error; neither is counted further than `most`.
pub async fn sizes(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<(u64, u64)> {
    let mut sizes = [0; 2];
    for (size, sql) in sizes.iter_mut().zip([&sql::COUNT_UP_TO, &sql::COUNT_IN_ERROR]) {
        let rows = conn.rows(sql, &values![machine, i64::from(most)]).await?;
        *size = rows.first().map(|row| row.get(0)).transpose()?.map_or(0, number);
    }
    Ok((sizes[0], sizes[1]))
}

/// What is due of a machine and not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overdue {
    /// How many attempts, as far as they were counted.
    pub attempts: u64,
    /// Since when the first.
    pub since: Option<Timestamp>,
}

/// The attempts of a machine that are due at `now` and that nobody has claimed, counted no further than `most`.
pub async fn overdue(conn: &mut Conn<'_>, machine: &str, now: Timestamp, most: u32) -> Result<Overdue> {
    let rows = conn.rows(&sql::OVERDUE, &values![machine, now.as_micros(), i64::from(most)]).await?;
    let Some(row) = rows.first() else { return Ok(Overdue::default()) };
    Ok(Overdue { attempts: number(row.get(0)?), since: row.time_if_any(1)? })
}

/// When an attempt was made, due, begun and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// The machine.
    pub machine: String,
    /// How far it has come, or how it ended.
    pub state: AttemptState,
    /// When its row was written.
    pub created_at: Timestamp,
    /// When it might start.
    pub scheduled_at: Timestamp,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When its end was committed.
    pub finished_at: Option<Timestamp>,
}

/// How many events wait for their turn in instances of a machine. At most `most` waiting events of all machines are read, so that the count is
/// too low beyond.
pub async fn inbox_events(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<u64> {
    let rows = conn.rows(&sql::COUNT_INBOX, &values![machine, i64::from(most)]).await?;
    Ok(rows.first().map(|row| row.get(0)).transpose()?.map_or(0, number))
}

/// The attempts of the newest calls of all machines, newest first.
pub async fn newest(conn: &mut Conn<'_>, limit: u32) -> Result<Vec<Times>> {
    let rows = conn.rows(&sql::NEWEST, &values![i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            Ok(Times {
                machine: row.get(0)?,
                state: row.word(1)?,
                created_at: row.time(2)?,
                scheduled_at: row.time(3)?,
                started_at: row.time_if_any(4)?,
                finished_at: row.time_if_any(5)?,
            })
        })
        .collect()
}

/// What the database says of itself that bears on durability: names and values.
pub async fn settings(conn: &mut Conn<'_>) -> Result<Vec<(String, String)>> {
    let rows = conn.rows(&sql::SETTINGS, &[]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// What SQLite finds wrong with its file; nothing for PostgreSQL, which has no such check. Reads the whole file.
pub async fn file_faults(conn: &mut Conn<'_>) -> Result<Vec<String>> {
    let rows = conn.rows(&sql::FILE_CHECK, &[]).await?;
    let lines = rows.iter().map(|row| row.get::<String>(0)).collect::<Result<Vec<_>>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Since when the oldest snapshot of another session keeps PostgreSQL from clearing away old rows.
pub async fn oldest_snapshot(conn: &mut Conn<'_>) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::OLDEST_SNAPSHOT, &[]).await?;
    Ok(rows.first().map(|row| row.time_if_any(0)).transpose()?.flatten())
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
