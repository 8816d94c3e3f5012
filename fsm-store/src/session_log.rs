//! The session log: the instances in which a session began attempts, one row for each commit that did. It leads to the open calls of a dead
//! worker, and to those that were opened by a commit with an unknown outcome.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};

use fsm_core::call::Attempt;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sql;
use super::values::values;

/// The number of rows that are read at a time.
const ROWS: i64 = 256;

/// A row of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    /// The number of the row. Later rows of a session have higher numbers.
    pub number: i64,
    /// The instances in which attempts began.
    pub instances: Vec<InstanceId>,
}

/// An attempt that a session executes.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutingAttempt {
    /// The key of its instance.
    pub key: String,
    /// The attempt.
    pub attempt: Attempt,
}

/// The executing attempts of sessions.
#[derive(Debug, Default)]
pub struct Executing {
    /// The attempts that can be decoded.
    pub attempts: Vec<ExecutingAttempt>,
    /// The instances and calls of the attempts that cannot be decoded.
    pub unread: Vec<(InstanceId, CallId, StoreError)>,
}

impl Executing {
    /// Decodes each row separately, so that a row that cannot be decoded does not stop the others.
    fn of(rows: &[Row]) -> Executing {
        let mut all = Executing::default();
        for row in rows {
            match read_row(row) {
                Ok(executing) => all.attempts.push(executing),
                Err(why) => {
                    let (instance, call) = row.ids_of_unread();
                    all.unread.push((instance, call, why));
                }
            }
        }
        all
    }

    /// The instances of all attempts, including those that cannot be decoded.
    pub fn instances(&self) -> HashSet<InstanceId> {
        let unread = self.unread.iter().map(|(instance, ..)| *instance);
        self.attempts.iter().map(|executing| executing.attempt.instance).chain(unread).collect()
    }
}

fn read_row(row: &Row) -> Result<ExecutingAttempt> {
    let instance = row.instance(0)?;
    let attempt = row.newest(&instance, 0)?;
    let attempt = attempt.ok_or_else(|| StoreError::Corrupt { what: format!("instance {} executes no call", instance.id) })?;
    Ok(ExecutingAttempt { key: instance.key, attempt })
}

/// The number for the next row that this process writes to any session log.
pub(super) fn next_number() -> i64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of the last row that this process wrote to any session log.
pub fn last_number() -> i64 {
    LAST.load(Ordering::Relaxed)
}

static LAST: AtomicI64 = AtomicI64::new(0);

/// The next rows of the session's log after row `after`; -1 is the beginning. Empty after the last row.
pub async fn rows(conn: &mut Conn<'_>, session: SessionId, after: i64) -> Result<Vec<LogRow>> {
    let rows = conn.rows(&sql::LOG_ROWS, &values![session.0, after, ROWS]).await?;
    rows.iter().map(|row| Ok(LogRow { number: row.get(0)?, instances: instances(&row.get::<Vec<u8>>(1)?) })).collect()
}

/// The whole log of the session, and the executing attempts that it leads to. A row that leads to no executing attempt can be deleted.
pub async fn read(conn: &mut Conn<'_>, session: SessionId) -> Result<(Vec<LogRow>, Executing)> {
    let (mut log, mut all): (Vec<LogRow>, _) = (Vec::new(), Executing::default());
    let mut found_executing = HashSet::new();
    loop {
        let more = rows(conn, session, log.last().map_or(-1, |last| last.number)).await?;
        let is_end = more.len() < ROWS as usize;
        // An instance that did not execute when an earlier row was read may have begun an attempt since, with one of these rows.
        let listed: BTreeSet<_> = more.iter().flat_map(|row| &row.instances).copied().collect();
        let listed = listed.into_iter().filter(|instance| !found_executing.contains(instance));
        let found = executing(conn, listed.map(|instance| (instance, session))).await?;
        found_executing.extend(found.instances());
        all.attempts.extend(found.attempts);
        all.unread.extend(found.unread);
        log.extend(more);
        if is_end {
            return Ok((log, all));
        }
    }
}

/// The executing attempts among these pairs of an instance and the session that may execute an attempt of it.
pub async fn executing(conn: &mut Conn<'_>, asked: impl Iterator<Item = (InstanceId, SessionId)>) -> Result<Executing> {
    let rows = conn.batch(&sql::EXECUTING, asked.map(|(instance, session)| values![instance.0, session.0]).collect()).await?;
    Ok(Executing::of(&rows))
}

/// The executing attempts of sessions without a lease at `now`, among the next `count` instances after `after`, and the last of these
/// instances; `None` at the end. It finds attempts that no log lists: the sweeper slowly reads all instances.
pub async fn unlisted(conn: &mut Conn<'_>, after: InstanceId, count: u32, now: Timestamp) -> Result<(Executing, Option<InstanceId>)> {
    let rows = conn.rows(&sql::SCAN_END, &values![after.0, i64::from(count)]).await?;
    let end = rows.first().map(|row| row.instance_id(0)).transpose()?;
    let until = end.map_or(Uuid::max(), |end| end.0);
    let rows = conn.rows(&sql::UNLISTED, &values![after.0, until, now.as_micros()]).await?;
    Ok((Executing::of(&rows), end))
}

/// The sessions that have a log and no lease at `now`.
pub async fn dead(conn: &mut Conn<'_>, now: Timestamp) -> Result<Vec<SessionId>> {
    let rows = conn.rows(&sql::LOG_SESSIONS, &values![now.as_micros()]).await?;
    rows.iter().map(|row| row.get(0).map(SessionId)).collect()
}

/// Replaces the `rows` of the session's log by one new row with the instances in which an attempt still executes.
pub async fn shorten(conn: &mut Conn<'_>, session: SessionId, rows: &[LogRow], executing: &[InstanceId]) -> Result<()> {
    let moved: Vec<u8> = executing.iter().flat_map(|instance| *instance.0.as_bytes()).collect();
    let put = if moved.is_empty() { Vec::new() } else { vec![values![session.0, next_number(), moved.as_slice()]] };
    conn.put(&sql::LOG_PUT, put.into()).await?;
    conn.put(&sql::LOG_DELETE, rows.iter().map(|row| values![session.0, row.number]).collect()).await
}

/// Writes a log row for each session whose attempts were imported from another database.
pub async fn adopt(conn: &mut Conn<'_>, executing: HashMap<Uuid, Vec<Uuid>>) -> Result<()> {
    let begun: Vec<(Uuid, Vec<u8>)> =
        executing.into_iter().map(|(session, ids)| (session, ids.iter().flat_map(|id| *id.as_bytes()).collect())).collect();
    conn.put(&sql::LOG_PUT, begun.iter().map(|(session, ids)| values![*session, next_number(), ids.as_slice()]).collect()).await
}

/// Decodes the ids. Bytes that are no id are left out: the slow scan of all instances finds those attempts.
fn instances(bytes: &[u8]) -> Vec<InstanceId> {
    bytes.chunks_exact(16).filter_map(|id| Uuid::from_slice(id).ok().map(InstanceId)).collect()
}
