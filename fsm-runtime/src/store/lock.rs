//! What a decision reads, inside the transaction that will write it. Locking the instance is what keeps its rows still.

use std::collections::HashMap;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Forecast, Request, Waiting};
use fsm_core::decide::inbox::Inbox;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::file_version::FileVersion;
use super::rows::{INSTANCE_COLUMNS, Row};
use super::sql;
use super::values::values;
use super::write::RowVersion;

/// An instance by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target<'a> {
    /// The graph it lives in.
    pub machine: &'a str,
    /// The user's name for it.
    pub key: &'a str,
}

/// An instance under its lock.
#[derive(Debug, Clone, PartialEq)]
pub struct Locked {
    /// Its row.
    pub instance: Instance,
    /// It has a timer of its own, of its state or a wake.
    pub has_timer: bool,
}

/// An instance as one commit left it, read without a lock.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSnapshot {
    /// Its row.
    pub instance: Arc<Instance>,
    /// It has a timer of its own, of its state or a wake.
    pub has_timer: bool,
    /// What shows that it is still so.
    pub row_version: RowVersion,
}

/// What a process knows of an instance without a look at the database.
#[derive(Debug, Clone, PartialEq)]
pub enum CachedSnapshot {
    /// How a commit left it, and as far as this process knows none has come since.
    RowSnapshot(RowSnapshot),
    /// That an event waits for it, so that the end of its attempt needs more than its row.
    SomethingWaits,
}

impl CachedSnapshot {
    /// What is known of an instance that stands so.
    pub fn of(instance: &Instance, seen: Option<RowSnapshot>) -> Option<CachedSnapshot> {
        if instance.inbox_len() > 0 { Some(CachedSnapshot::SomethingWaits) } else { seen.map(CachedSnapshot::RowSnapshot) }
    }

    /// How it was seen, if it was, and with SQLite in that epoch.
    pub fn seen(&self, file_version: Option<FileVersion>) -> Option<&RowSnapshot> {
        match self {
            CachedSnapshot::RowSnapshot(seen)
                if file_version.is_none_or(|file_version| seen.row_version == RowVersion::FileVersion(file_version)) =>
            {
                Some(seen)
            }
            CachedSnapshot::RowSnapshot(_) | CachedSnapshot::SomethingWaits => None,
        }
    }
}

/// A call id that the database has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCall {
    /// The id.
    pub call: CallId,
    /// The instance.
    pub instance: InstanceId,
    /// Where it is.
    pub place: Place,
}

/// Where a call id can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It was begun.
    Call,
    /// It waits for its turn.
    Inbox,
    /// It waits for its time.
    Timer,
    /// It waited, and no longer fitted when its turn came.
    Rejected,
}

/// The instances of these different names in the order of `targets`, `None` where there is none. With PostgreSQL they are locked until the
/// transaction ends, always in the same order; SQLite's transaction is alone.
pub async fn instances(conn: &mut Conn<'_>, targets: &[Target<'_>]) -> Result<Vec<Option<Locked>>> {
    let rows = conn.batch(&sql::LOCK_BY_KEY, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    in_order(&rows, targets, |row, instance| Ok(Locked { instance, has_timer: row.get(INSTANCE_COLUMNS)? }))
}

/// The same, and which of them somebody else has locked: they are not waited for, and are not among those found.
pub async fn free_instances(conn: &mut Conn<'_>, targets: &[Target<'_>]) -> Result<(Vec<Option<Locked>>, Vec<usize>)> {
    if !conn.is_postgres() {
        return Ok((instances(conn, targets).await?, Vec::new()));
    }
    let rows = conn.batch(&sql::LOCK_IF_FREE, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    let (mut free, mut locked) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        if row.get::<Option<Uuid>>(0)?.is_some() {
            free.push(row);
            continue;
        }
        let (machine, key): (String, String) = (row.get(INSTANCE_COLUMNS + 1)?, row.get(INSTANCE_COLUMNS + 2)?);
        locked.extend(targets.iter().position(|target| target.machine == machine && target.key == key));
    }
    Ok((in_order(&free, targets, |row, instance| Ok(Locked { instance, has_timer: row.get(INSTANCE_COLUMNS)? }))?, locked))
}

/// The same without a lock: from SQLite in that epoch, else from PostgreSQL.
pub async fn see(conn: &mut Conn<'_>, targets: &[Target<'_>], file_version: Option<FileVersion>) -> Result<Vec<Option<RowSnapshot>>> {
    let sql = if file_version.is_some() { &sql::LOCK_BY_KEY } else { &sql::READ_BY_KEY };
    let rows = conn.batch(sql, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    in_order(&rows, targets, |row, instance| {
        let of_row = || row.get(INSTANCE_COLUMNS + 1).map(|xmin| RowVersion::Row { xmin, updated_at: instance.updated_at });
        let row_version = file_version.map_or_else(of_row, |file_version| Ok(RowVersion::FileVersion(file_version)))?;
        Ok(RowSnapshot { instance: Arc::new(instance), has_timer: row.get(INSTANCE_COLUMNS)?, row_version })
    })
}

/// What the rows hold in the order of `targets`.
fn in_order<T: Clone>(rows: &[Row], targets: &[Target<'_>], read: impl Fn(&Row, Instance) -> Result<T>) -> Result<Vec<Option<T>>> {
    let places: HashMap<_, _> = targets.iter().enumerate().map(|(place, target)| ((target.machine, target.key), place)).collect();
    let mut found = vec![None; targets.len()];
    for row in rows {
        let instance = row.instance(0)?;
        if let Some(&place) = places.get(&(instance.machine.as_str(), instance.key.as_str())) {
            found[place] = Some(read(row, instance)?);
        }
    }
    Ok(found)
}

/// The same by id.
pub async fn instances_by_id(conn: &mut Conn<'_>, ids: &[InstanceId]) -> Result<Vec<Option<Instance>>> {
    let rows = conn.batch(&sql::LOCK_BY_ID, ids.iter().map(|id| values![id.0]).collect()).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let instance = row.instance(0)?;
        found.insert(instance.id, instance);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// The last attempt of each of these calls, without payload or lock, in any order.
pub async fn last_attempts(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<Attempt>> {
    let rows = conn.batch(&sql::LAST_ATTEMPTS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| row.attempt(0)).collect()
}

/// These attempts, without payload or lock, in any order. One that does not exist is left out.
pub async fn attempts(conn: &mut Conn<'_>, ids: &[(CallId, u32)]) -> Result<Vec<Attempt>> {
    let rows = conn.batch(&sql::ATTEMPTS, ids.iter().map(|(call, number)| values![call.0, i64::from(*number)]).collect()).await?;
    rows.iter().map(|row| row.attempt(0)).collect()
}

/// What waits for these instances, at most so many of each one's, by position.
pub async fn inbox(conn: &mut Conn<'_>, instances: &[&Instance], most: i64) -> Result<Vec<(InstanceId, Waiting)>> {
    let until = |instance: &Instance| instance.inbox_head.saturating_add(most).min(instance.inbox_tail);
    let batch = instances.iter().map(|instance| values![instance.id.0, instance.inbox_head, until(instance)]);
    let rows = conn.batch(&sql::INBOX, batch.collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, waiting(row)?))).collect()
}

/// The event types that wait for these instances, each once.
pub async fn waiting_events(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<Vec<(InstanceId, String)>> {
    let rows = conn.batch(&sql::WAITING_EVENTS, instances.iter().map(|id| values![id.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).collect()
}

/// The first events that wait for these instances, at most so many of each one's, and what is foreseen of all.
pub async fn inbox_ends(conn: &mut Conn<'_>, instances: &[&Instance], most: i64) -> Result<HashMap<InstanceId, Inbox>> {
    let batch = instances.iter().map(|instance| {
        let until = instance.inbox_head.saturating_add(most).min(instance.inbox_tail);
        values![instance.id.0, instance.inbox_head, until, instance.inbox_tail - 1]
    });
    let mut inboxes: HashMap<InstanceId, Inbox> = HashMap::with_capacity(instances.len());
    for row in conn.batch(&sql::INBOX_ENDS, batch.collect()).await? {
        let inbox = inboxes.entry(row.instance_id(0)?).or_default();
        let waiting = waiting(&row)?;
        // What cannot be read is looked at anew.
        inbox.forecast = row.get::<Option<String>>(4)?.and_then(|json| serde_json::from_str::<Forecast>(&json).ok());
        if inbox.first.last().is_none_or(|before| before.position + 1 == waiting.position) {
            inbox.first.push(waiting);
        }
    }
    Ok(inboxes)
}

fn waiting(row: &Row) -> Result<Waiting> {
    Ok(Waiting { position: row.get(1)?, call: row.call_id(2)?, event: row.get(3)? })
}

/// Those of the dedup ids `asked` for that are known.
pub async fn requests(conn: &mut Conn<'_>, asked: &[(InstanceId, &str)]) -> Result<Vec<(InstanceId, Request)>> {
    let rows = conn.batch(&sql::REQUESTS, asked.iter().map(|(id, dedup)| values![id.0, *dedup]).collect()).await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.instance_id(0)?,
                Request { dedup: row.get(1)?, event: row.get(2)?, digest: row.get(3)?, call: row.call_id(4)?, at: row.time(5)? },
            ))
        })
        .collect()
}

/// Those of these call ids that the database has: what a send asks that is repeated after a commit whose outcome was not known.
/// A delayed send is found by its timer, whose id is the call's.
pub async fn known(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<KnownCall>> {
    let rows = conn.batch(&sql::KNOWN, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter()
        .map(|row| {
            let place = match row.get::<String>(2)?.as_str() {
                "call" => Place::Call,
                "inbox" => Place::Inbox,
                "rejected" => Place::Rejected,
                _ => Place::Timer,
            };
            Ok(KnownCall { call: row.call_id(0)?, instance: row.instance_id(1)?, place })
        })
        .collect()
}
