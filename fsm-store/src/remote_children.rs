//! The children that belong to other partitions than their parents: the rows that stand for them in the partition of the parent, and the reports that
//! they send.

use std::collections::HashSet;

use fsm_core::changes::Changes;
use fsm_core::commit::family_notice::{ChildReport, FamilyNotice};
use fsm_core::commit::rows::{RemoteChild, RemoteToCancel};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::open::Store;
use super::parent_elsewhere::ParentElsewhere;
use super::sink::Sink;
use super::sql;
use super::values::values;
use super::write::json::json as text_of;

/// The result of the report of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It is recorded, now or before.
    Recorded,
    /// It is recorded, and the parent no longer waits for the child, for this reason.
    Unawaited(String),
    /// Nothing is recorded, because the notice that starts the child is being delivered, or is delivered again. The report is to come again.
    ComesAgain,
}

/// Adds children. Returns the ids of the first calls of those that were not there.
pub async fn put(conn: &mut Conn<'_>, children: &[RemoteChild<'_>], now: Timestamp) -> Result<HashSet<CallId>> {
    let rows = children.iter().map(|RemoteChild { parent, partition, child }| {
        values![
            parent.id.0,
            parent.group,
            child.machine.as_str(),
            child.key.as_str(),
            i64::from(*partition),
            child.id.0,
            if child.is_detached { "detached" } else { "attached" },
            child.end_event.as_deref(),
            child.failure_event.as_deref(),
            now.as_micros(),
        ]
    });
    conn.batch(&sql::REMOTE_CHILDREN_PUT, rows.collect()).await?.iter().map(|row| row.call_id(0)).collect()
}

/// Marks children of the parent that are to be cancelled with it, at most `limit`, and returns those that were not marked.
pub async fn to_cancel(conn: &mut Conn<'_>, parent: InstanceId, limit: u32) -> Result<Vec<RemoteToCancel>> {
    let rows = conn.rows(&sql::REMOTE_CHILDREN_CANCEL, &values![parent.0, i64::from(limit)]).await?;
    let read = |row: &super::rows::Row| {
        let partition = u32::try_from(row.get::<i64>(0)?).unwrap_or(u32::MAX);
        Ok(RemoteToCancel { partition, group: row.get(1)?, machine: row.get(2)?, key: row.get(3)? })
    };
    rows.iter().map(read).collect()
}

/// Writes reports of these children to their parents in other partitions.
pub(crate) async fn report(sink: &mut Sink<'_, '_>, changes: &[&&Changes]) -> Result<()> {
    let mut notices = Vec::with_capacity(changes.len());
    for Changes { instance, .. } in changes {
        let Some(parent) = instance.parent else { continue };
        let notice = FamilyNotice::Report(ChildReport {
            parent: parent.id,
            group: parent.group,
            machine: instance.machine.clone(),
            key: instance.key.clone(),
            number: instance.row_version,
            state: instance.state.clone(),
            status: instance.status,
            at: instance.updated_at,
        });
        notices.push((instance, text_of(Some(&notice))?));
    }
    let rows = notices.iter().map(|(instance, notice)| {
        let is_end = instance.status.is_ended();
        let (event, at) = (if is_end { "ChildEnded" } else { "ChildFailed" }, instance.updated_at.as_micros());
        values![instance.id.0, Uuid::now_v7(), event, &[][..], is_end, at, notice.as_deref()]
    });
    sink.put(&sql::REPORT_TO_PARENT, rows.collect()).await
}

/// Records the report of this child in the partition of its parent, in one commit. A report that comes again changes nothing.
///
/// Retention may delete the child after its end is recorded. So the end is recorded after the notice that starts the child has left the outbox:
/// a delivery that comes late would start the child again.
pub async fn hear(store: &Store, report: &ChildReport, child: InstanceId, call: CallId, now: Timestamp) -> Result<Heard> {
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    let started_by = take(&mut conn, report, child, call).await?;
    if let Some(start) = started_by.filter(|_| report.status.is_ended()) {
        conn.put(&sql::PARTITION_OUTBOX_WITHDRAW, std::iter::once(values![start.0, now.as_micros()]).collect()).await?;
        if !conn.rows(&sql::PARTITION_OUTBOX_HAS, &values![start.0]).await?.is_empty() {
            return tx.rollback().await.map(|()| Heard::ComesAgain);
        }
    }
    let parent = conn.rows(&sql::AWAITS_REMOTE_CHILD, &values![report.parent.0, report.group]).await?;
    let unawaited = match parent.first() {
        None => Some("its parent no longer exists".to_owned()),
        // The history of a child that is cancelled names the reason already.
        Some(row) if started_by.is_some() => row.get(0)?,
        Some(_) => None,
    };
    tx.commit().await?;
    let unawaited: Option<String> = unawaited.filter(|_| report.status == Status::Completed);
    Ok(unawaited.map_or(Heard::Recorded, Heard::Unawaited))
}

/// Records the report of a child. Returns the call that started it, or `None` if the report changes nothing.
pub(crate) async fn take(conn: &mut Conn<'_>, report: &ChildReport, child: InstanceId, call: CallId) -> Result<Option<CallId>> {
    let ChildReport { parent, group, machine, key, number, state, status, at } = report;
    let (machine, key, at) = (machine.as_str(), key.as_str(), at.as_micros());
    let values = values![parent.0, *group, machine, key, *number, state.as_deref(), status.as_str(), at];
    let rows = conn.rows(&sql::REMOTE_CHILD_REPORT, &values).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let payload = json!({ "key": key, "state": state, "status": status, "at": report.at }).to_string().into_bytes();
    let event = values![parent.0, *group, machine, key, child.0, call.0, status.is_ended(), payload.as_slice(), at];
    conn.put(&sql::REMOTE_CHILD_EVENT, std::iter::once(event).collect()).await?;
    row.call_id(0).map(Some)
}

/// The partitions in which the parent has children.
pub async fn partitions(conn: &mut Conn<'_>, parent: InstanceId) -> Result<Vec<u32>> {
    let rows = conn.rows(&sql::REMOTE_CHILDREN_IN, &values![parent.0]).await?;
    rows.iter().map(|row| Ok(u32::try_from(row.get::<i64>(0)?).unwrap_or(u32::MAX))).collect()
}

/// The parent of this instance in another partition.
pub async fn parent_elsewhere(conn: &mut Conn<'_>, child: InstanceId) -> Result<Option<ParentElsewhere>> {
    let rows = conn.rows(&sql::PARENT_ELSEWHERE, &values![child.0]).await?;
    rows.first().map_or(Ok(None), |row| row.parent_elsewhere(0))
}
