//! The reads across instances for an operator: failed and retrying instances, upcoming attempts and timers, and counts.

use std::collections::HashMap;

use fsm_core::call::AttemptState;
use fsm_core::ids::{CallId, InstanceId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::time::{Timestamp, serialize_text};
use serde::Serialize;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::lock;
use super::rows::Row;
use super::session_log::ExecutingAttempt;
use super::sql;
use super::values::values;
use super::workers::{self, executing};

/// The maximum number of waiting events that are read for one instance.
const MOST_WAITING: i64 = 100;

/// An event of an inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InboxEvent {
    /// The position in the inbox.
    pub position: i64,
    /// The id of the call that starts when the event is taken from the inbox.
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
    /// The event type.
    pub event: String,
    /// The time at which the event is delivered.
    #[serde(serialize_with = "serialize_text")]
    pub due_at: Timestamp,
    /// True if the timer became due during a transition. It fires when the transition ends.
    pub held: bool,
}

/// An instance in error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// The id of the instance.
    pub id: InstanceId,
    /// The key of the instance.
    pub key: String,
    /// The state that the instance is in.
    pub state: Option<String>,
    /// The verb that failed.
    pub verb: Option<String>,
    /// The error.
    pub error: String,
    /// The time of the last change of the instance.
    pub since: Timestamp,
}

/// An instance whose open attempt follows one that failed or was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    /// The instance, its verb, and the error and the end time of the previous attempt.
    pub failing: Failing,
    /// The number of the open attempt.
    pub number: u32,
    /// The maximum number of attempts; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// The time from which the open attempt may start. It is in the past if the attempt executes.
    pub next_at: Timestamp,
    /// True if the open attempt executes.
    pub executes: bool,
}

/// An event that was accepted but not taken: no edge accepted it when it left the inbox, or the receiver refused an event that a verb sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedEvent {
    /// The id of the call that the event would have started.
    pub call: CallId,
    /// The key of the receiver, or of the sender if the receiver does not exist.
    pub key: String,
    /// The time at which it was rejected.
    pub at: Timestamp,
    /// The reason.
    pub reason: String,
}

/// The number of events that a machine rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectedCount {
    /// The number of events, up to the limit of the count.
    pub events: u64,
    /// The time at which the newest of them was rejected.
    pub last_at: Option<Timestamp>,
}

/// Something that happens without a request at a known time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coming {
    /// The machine.
    pub machine: String,
    /// The key of the instance.
    pub key: String,
    /// The time.
    pub at: Timestamp,
    /// The kind.
    pub what: ToCome,
}

/// The kinds of things that happen without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToCome {
    /// An attempt may start.
    Attempt {
        /// The verb that runs.
        verb: String,
        /// The event type that the verb gets.
        event: String,
        /// The number of the attempt, from 1.
        number: u32,
        /// The maximum number of attempts; `None` is unlimited.
        max_attempts: Option<u32>,
        /// The limit that it waits for, with its value if it has one, as [`fsm_core::limit::parts`] splits it.
        limit: Option<String>,
    },
    /// The worker's lease has expired. The attempt is marked lost and its call continues as soon as a process of its machine is alive.
    Lapsed {
        /// The verb that ran.
        verb: String,
        /// The event type that the verb got.
        event: String,
        /// The number of the attempt, from 1.
        number: u32,
        /// The maximum number of attempts; `None` is unlimited.
        max_attempts: Option<u32>,
    },
    /// An event is delivered.
    Event {
        /// The state that the timer belongs to; `None` for a delayed send.
        state: Option<String>,
        /// The event type.
        event: String,
    },
}

/// The events that wait for an instance, in order.
pub async fn inbox(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<InboxEvent>> {
    let rows = conn.rows(&sql::WAITING, &values![instance.0]).await?;
    rows.iter()
        .map(|row| Ok(InboxEvent { position: row.get(0)?, call: row.call_id(1)?, event: row.get(2)?, since: row.time(3)? }))
        .collect()
}

/// The timers of an instance, by due time.
pub async fn timers(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<PendingTimer>> {
    let rows = conn.rows(&sql::TIMERS_SET, &values![instance.0]).await?;
    rows.iter()
        .map(|row| {
            let id = TimerId(row.get(0)?);
            Ok(PendingTimer { id, state: row.get(1)?, event: row.get(2)?, due_at: row.time(3)?, held: row.get(4)? })
        })
        .collect()
}

/// The first timers of each of these instances, by due time: at most 100 for each instance, without wake-ups.
pub async fn timers_of(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<HashMap<InstanceId, Vec<PendingTimer>>> {
    let mut timers: HashMap<_, Vec<_>> = HashMap::new();
    for row in conn.batch(&sql::PENDING_TIMERS, instances.iter().map(|id| values![id.0]).collect()).await? {
        let id = TimerId(row.get(1)?);
        let timer = PendingTimer { id, state: row.get(2)?, event: row.get(3)?, due_at: row.time(4)?, held: row.get(5)? };
        timers.entry(row.instance_id(0)?).or_default().push(timer);
    }
    Ok(timers)
}

/// The events that wait for each of these instances, in order: at most 100 for each instance.
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

/// The instances of a machine that are in error and were created before `before`, the newest first.
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

/// The instances of a machine whose open attempt follows a failed or lost one, by due time. Returns at most `limit`. Considers the first
/// `look_at` scheduled attempts, and all executing attempts.
pub async fn retrying(conn: &mut Conn<'_>, machine: &str, limit: u32, look_at: u32) -> Result<Vec<Retrying>> {
    let rows = conn.rows(&sql::RETRYING, &values![machine, i64::from(limit), i64::from(look_at)]).await?;
    let mut retrying: Vec<Retrying> = rows
        .iter()
        .map(|row| {
            let number = row.count(6)?;
            let error = row.get::<Option<String>>(4)?.unwrap_or_else(|| LOST.to_owned());
            let failing =
                Failing { id: row.instance_id(0)?, key: row.get(1)?, state: row.get(2)?, verb: row.get(3)?, error, since: row.time(5)? };
            Ok(Retrying { failing, number, max_attempts: most(row, 7, number)?, next_at: row.time(8)?, executes: false })
        })
        .collect::<Result<_>>()?;
    let executing = executing(conn, Timestamp::from_micros(i64::MAX)).await?;
    let executing: Vec<_> = executing.into_iter().filter(|one| one.attempt.machine == machine && one.attempt.number > 1).collect();
    let wanted: Vec<_> = executing.iter().map(|one| (one.attempt.call, one.attempt.number - 1)).collect();
    let before = lock::attempts(conn, &wanted).await?;
    for ExecutingAttempt { key, attempt } in executing {
        let before = before.iter().find(|before| (before.call, before.number + 1) == (attempt.call, attempt.number));
        let Some(before) = before.filter(|before| matches!(before.state, AttemptState::Error | AttemptState::Lost)) else { continue };
        let error = before.error.clone().unwrap_or_else(|| LOST.to_owned());
        let since = before.finished_at.unwrap_or(before.created_at);
        let max_attempts = attempt.retry_state.remaining.map(|left| attempt.number.saturating_add(left));
        let failing = Failing { id: attempt.instance, key, state: attempt.from, verb: Some(attempt.verb), error, since };
        retrying.push(Retrying { failing, number: attempt.number, max_attempts, next_at: attempt.scheduled_at, executes: true });
    }
    retrying.sort_by_key(|retrying| retrying.next_at);
    retrying.truncate(limit as usize);
    Ok(retrying)
}

/// The error text of a lost attempt.
const LOST: &str = "the attempt was lost: its worker died";

/// The rejected events of a machine whose calls were made before `before`, the newest first.
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

/// The number of events that a machine rejected. Counts at most `most`, the newest first.
pub async fn rejected_count(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<RejectedCount> {
    let rows = conn.rows(&sql::COUNT_REJECTED, &values![machine, i64::from(most)]).await?;
    let Some(row) = rows.first() else { return Ok(RejectedCount::default()) };
    Ok(RejectedCount { events: number(row.get(0)?), last_at: row.time_if_any(1)? })
}

/// The maximum number of attempts: `number` plus the remaining attempts in column `at`. `None` is unlimited.
fn most(row: &Row, at: usize, number: u32) -> Result<Option<u32>> {
    let is_bounded = row.get::<Option<i64>>(at)?.is_some();
    is_bounded.then(|| row.count(at).map(|left| number.saturating_add(left))).transpose()
}

/// The next attempts, expired leases and timers of a machine, by time. `now` decides which leases have expired.
pub async fn to_come(conn: &mut Conn<'_>, machine: &str, now: Timestamp, limit: u32) -> Result<Vec<Coming>> {
    let coming = |key, at, what| Coming { machine: machine.to_owned(), key, at, what };
    let mut all = Vec::new();
    for row in conn.rows(&sql::CALLS_TO_COME, &values![machine, i64::from(limit)]).await? {
        let number = row.count(3)?;
        let max_attempts = most(&row, 4, number)?;
        let (verb, event, limit) = (row.get(1)?, row.get(2)?, row.get(6)?);
        all.push(coming(row.get(0)?, row.time(5)?, ToCome::Attempt { verb, event, number, max_attempts, limit }));
    }
    let leases = workers::leases(conn).await?;
    for ExecutingAttempt { key, attempt } in executing(conn, now).await?.into_iter().filter(|one| one.attempt.machine == machine) {
        let (number, lease) = (attempt.number, attempt.worker.and_then(|session| leases.get(&session).copied()));
        let max_attempts = attempt.retry_state.remaining.map(|left| number.saturating_add(left));
        let at = lease.or(attempt.started_at).unwrap_or(attempt.created_at);
        all.push(coming(key, at, ToCome::Lapsed { verb: attempt.verb, event: attempt.event, number, max_attempts }));
    }
    for row in conn.rows(&sql::TIMERS_TO_COME, &values![machine, i64::from(limit)]).await? {
        all.push(coming(row.get(0)?, row.time(3)?, ToCome::Event { state: row.get(1)?, event: row.get(2)? }));
    }
    all.sort_by_key(|coming| coming.at);
    all.truncate(limit as usize);
    Ok(all)
}

/// The number of instances of a machine, and the number of those in error. Each count stops at `most`.
pub async fn sizes(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<(u64, u64)> {
    let mut sizes = [0; 2];
    for (size, sql) in sizes.iter_mut().zip([&sql::COUNT_UP_TO, &sql::COUNT_IN_ERROR]) {
        let rows = conn.rows(sql, &values![machine, i64::from(most)]).await?;
        *size = rows.first().map(|row| row.get(0)).transpose()?.map_or(0, number);
    }
    Ok((sizes[0], sizes[1]))
}

/// The attempts of a machine that are due and have not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overdue {
    /// The number of attempts, up to the limit of the count.
    pub attempts: u64,
    /// The time at which the first of them became due.
    pub since: Option<Timestamp>,
}

/// The attempts of a machine that are due at `now` and not claimed. Counts at most `most`.
pub async fn overdue(conn: &mut Conn<'_>, machine: &str, now: Timestamp, most: u32) -> Result<Overdue> {
    let rows = conn.rows(&sql::OVERDUE, &values![machine, now.as_micros(), i64::from(most)]).await?;
    let Some(row) = rows.first() else { return Ok(Overdue::default()) };
    Ok(Overdue { attempts: number(row.get(0)?), since: row.time_if_any(1)? })
}

/// The number of timers of a machine that are due at `now` and have not fired, at most `most`, and the time of the first one.
pub async fn overdue_timers(conn: &mut Conn<'_>, machine: &str, now: Timestamp, most: u32) -> Result<(u64, Option<Timestamp>)> {
    let rows = conn.rows(&sql::OVERDUE_TIMERS, &values![machine, now.as_micros(), i64::from(most)]).await?;
    rows.first().map_or(Ok((0, None)), |row| Ok((number(row.get(0)?), row.time_if_any(1)?)))
}

/// The timer of a machine that is due first.
pub async fn first_timer(conn: &mut Conn<'_>, machine: &str) -> Result<Option<Coming>> {
    let rows = conn.rows(&sql::TIMERS_TO_COME, &values![machine, 1_i64]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Coming {
        machine: machine.to_owned(),
        key: row.get(0)?,
        at: row.time(3)?,
        what: ToCome::Event { state: row.get(1)?, event: row.get(2)? },
    }))
}

/// The times at which an attempt was created, due, claimed and completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// The machine.
    pub machine: String,
    /// The verb.
    pub verb: String,
    /// The state of the attempt.
    pub state: AttemptState,
    /// The time at which its row was written.
    pub created_at: Timestamp,
    /// The time from which it may start.
    pub scheduled_at: Timestamp,
    /// The time at which it was claimed.
    pub started_at: Option<Timestamp>,
    /// The time at which its completion was committed.
    pub finished_at: Option<Timestamp>,
}

/// The number of events in the inboxes of a machine's instances. Reads at most `most` inbox rows of all machines. The count is too low if
/// there are more.
pub async fn inbox_events(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<u64> {
    let rows = conn.rows(&sql::COUNT_INBOX, &values![machine, i64::from(most)]).await?;
    Ok(rows.first().map(|row| row.get(0)).transpose()?.map_or(0, number))
}

/// The ended attempts of the newest calls of all machines, the newest first.
pub async fn newest(conn: &mut Conn<'_>, limit: u32) -> Result<Vec<Times>> {
    let rows = conn.rows(&sql::NEWEST, &values![i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            Ok(Times {
                machine: row.get(0)?,
                verb: row.get(1)?,
                state: row.word(2)?,
                created_at: row.time(3)?,
                scheduled_at: row.time(4)?,
                started_at: row.time_if_any(5)?,
                finished_at: row.time_if_any(6)?,
            })
        })
        .collect()
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
