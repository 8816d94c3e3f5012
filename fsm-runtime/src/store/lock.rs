//! What a decision reads, inside the transaction that will write it. Locking the instance is what keeps its rows still.

use std::collections::HashMap;

use fsm_core::call::Attempt;
use fsm_core::changes::{Request, Waiting};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;

use super::conn::{Conn, values};
use super::error::Result;
use super::sql;

/// An instance by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target<'a> {
    /// The graph it lives in.
    pub machine: &'a str,
    /// The user's name for it.
    pub key: &'a str,
}

/// A call id that the database has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCall {
    /// The id.
    pub call: CallId,
    /// Whose it is.
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
pub async fn instances(conn: &mut Conn<'_>, targets: &[Target<'_>]) -> Result<Vec<Option<Instance>>> {
    let rows = conn.batch(&sql::LOCK_BY_KEY, targets.iter().map(|target| values![target.machine, target.key]).collect()).await?;
    let places: HashMap<_, _> = targets.iter().enumerate().map(|(place, target)| ((target.machine, target.key), place)).collect();
    let mut found = vec![None; targets.len()];
    for row in &rows {
        let instance = row.instance(0)?;
        if let Some(&place) = places.get(&(instance.machine.as_str(), instance.key.as_str())) {
            found[place] = Some(instance);
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

/// What waits for these instances; each one's by position.
pub async fn inbox(conn: &mut Conn<'_>, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Waiting)>> {
    let rows = conn.batch(&sql::INBOX, ids.iter().map(|id| values![id.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, Waiting { position: row.get(1)?, call: row.call_id(2)?, event: row.get(3)? }))).collect()
}

/// Those of the dedup ids `asked` for that are known.
pub async fn requests(conn: &mut Conn<'_>, asked: &[(InstanceId, &str)]) -> Result<Vec<(InstanceId, Request)>> {
    let rows = conn.batch(&sql::REQUESTS, asked.iter().map(|(id, dedup)| values![id.0, *dedup]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, Request { dedup: row.get(1)?, digest: row.get(2)?, call: row.call_id(3)? }))).collect()
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
