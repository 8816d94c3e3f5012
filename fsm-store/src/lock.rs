//! The reads of a decision. They lock the instances in the transaction that writes the decision, so that the rows cannot change in between.

use std::collections::HashMap;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Forecast, Request, Waiting};
use fsm_core::commit::rows::{FileVersion, KnownCall, Locked, Place, RowSnapshot, RowVersion, Target};
use fsm_core::decide::inbox::Inbox;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::rows::{Row, WITH_NEWEST};
use super::sql;
use super::values::values;

/// The instances of these distinct names in the order of `targets`; `None` if there is no such instance. PostgreSQL locks them until the
/// transaction ends, always in the same order, which prevents deadlocks. SQLite has only one writing transaction at a time.
pub async fn instances(conn: &mut Conn<'_>, targets: &[Target<'_>]) -> Result<Vec<Option<Locked>>> {
    let rows = conn.batch(&sql::LOCK_BY_KEY, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    in_order(&rows, targets, locked)
}

fn locked(row: &Row, instance: Instance) -> Result<Locked> {
    Ok(Locked { newest: row.newest_if_any(&instance, 0)?.map(Arc::new), instance, has_timer: row.get(WITH_NEWEST)? })
}

/// Like [`instances`], but does not wait for locks. The second list has the places of the targets that another transaction has locked.
pub async fn free_instances(conn: &mut Conn<'_>, targets: &[Target<'_>]) -> Result<(Vec<Option<Locked>>, Vec<usize>)> {
    if !conn.is_postgres() {
        return Ok((instances(conn, targets).await?, Vec::new()));
    }
    let rows = conn.batch(&sql::LOCK_IF_FREE, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    let (mut free, mut others) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        if row.get::<Option<Uuid>>(0)?.is_some() {
            free.push(row);
            continue;
        }
        let (machine, key): (String, String) = (row.get(WITH_NEWEST + 1)?, row.get(WITH_NEWEST + 2)?);
        others.extend(targets.iter().position(|target| target.machine == machine && target.key == key));
    }
    Ok((in_order(&free, targets, locked)?, others))
}

/// Like [`instances`], but without locks. `file_version` is set for SQLite and `None` for PostgreSQL.
pub async fn see(conn: &mut Conn<'_>, targets: &[Target<'_>], file_version: Option<FileVersion>) -> Result<Vec<Option<RowSnapshot>>> {
    let sql = if file_version.is_some() { &sql::LOCK_BY_KEY } else { &sql::READ_BY_KEY };
    let rows = conn.batch(sql, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    in_order(&rows, targets, |row, instance| {
        let row_version = file_version.map_or(RowVersion::Row, RowVersion::FileVersion);
        let newest = row.open_or_exhausted(&instance, 0)?;
        Ok(RowSnapshot { instance: Arc::new(instance), newest, has_timer: row.get(WITH_NEWEST)?, row_version })
    })
}

/// The values of the rows in the order of `targets`.
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

/// Like [`instances`], but by id, and each with its newest attempt.
pub async fn instances_by_id(conn: &mut Conn<'_>, ids: &[InstanceId]) -> Result<Vec<Option<(Instance, Option<Attempt>)>>> {
    let rows = conn.batch(&sql::LOCK_BY_ID, ids.iter().map(|id| values![id.0]).collect()).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let instance = row.instance(0)?;
        let newest = row.newest(&instance, 0)?;
        found.insert(instance.id, (instance, newest));
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// The last ended attempt of each of these calls, without payload or lock, in any order.
pub async fn last_attempts(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<Attempt>> {
    let rows = conn.batch(&sql::LAST_ATTEMPTS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| row.attempt(0)).collect()
}

/// The ended ones of these attempts, without payload or lock, in any order.
pub async fn attempts(conn: &mut Conn<'_>, ids: &[(CallId, u32)]) -> Result<Vec<Attempt>> {
    let rows = conn.batch(&sql::ATTEMPTS, ids.iter().map(|(call, number)| values![call.0, i64::from(*number)]).collect()).await?;
    rows.iter().map(|row| row.attempt(0)).collect()
}

/// The first `most` events in the inbox of each of these instances, by position.
pub async fn inbox(conn: &mut Conn<'_>, instances: &[&Instance], most: i64) -> Result<Vec<(InstanceId, Waiting)>> {
    let until = |instance: &Instance| instance.inbox_head.saturating_add(most).min(instance.inbox_tail);
    let batch = instances.iter().map(|instance| values![instance.id.0, instance.inbox_head, until(instance)]);
    let rows = conn.batch(&sql::INBOX, batch.collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, waiting(row)?))).collect()
}

/// The distinct event types that wait in the inbox of each of these instances.
pub async fn waiting_events(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<Vec<(InstanceId, String)>> {
    let rows = conn.batch(&sql::WAITING_EVENTS, instances.iter().map(|id| values![id.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).collect()
}

/// The first `most` events in the inbox of each of these instances, and the forecast of the whole inbox.
pub async fn inbox_ends(conn: &mut Conn<'_>, instances: &[&Instance], most: i64) -> Result<HashMap<InstanceId, Inbox>> {
    let batch = instances.iter().map(|instance| {
        let until = instance.inbox_head.saturating_add(most).min(instance.inbox_tail);
        values![instance.id.0, instance.inbox_head, until, instance.inbox_tail - 1]
    });
    let mut inboxes: HashMap<InstanceId, Inbox> = HashMap::with_capacity(instances.len());
    for row in conn.batch(&sql::INBOX_ENDS, batch.collect()).await? {
        let inbox = inboxes.entry(row.instance_id(0)?).or_default();
        let waiting = waiting(&row)?;
        // A forecast that cannot be decoded is computed again.
        inbox.forecast = row.get::<Option<String>>(4)?.and_then(|json| serde_json::from_str::<Forecast>(&json).ok());
        if inbox.first.last().is_none_or(|before| before.position + 1 == waiting.position) {
            inbox.first.push(waiting);
        }
    }
    Ok(inboxes)
}

fn waiting(row: &Row) -> Result<Waiting> {
    Ok(Waiting { position: row.get(1)?, call: row.call_id(2)?, event: row.get(3)?, priority: row.priority(5)? })
}

/// The requests among `asked` (instance and dedup id) that the database knows.
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

/// The call ids that the database already has. A send asks this when it is repeated after an unknown outcome.
/// A delayed send is found by its timer, which has the same id as its call.
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
