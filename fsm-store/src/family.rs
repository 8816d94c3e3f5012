//! Families: what is known of the children of instances.

use fsm_core::changes::Changes;
use fsm_core::commit::rows::{ChildEvent, OpenChildren};
use fsm_core::family::{Family, Parent};
use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::Event;
use serde_json::json;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::{Value, values};

/// An instance with children.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyRow {
    /// The instance.
    pub instance: InstanceId,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
    /// Its status.
    pub status: Status,
    /// Its state.
    pub state: Option<String>,
    /// True if a call is open or events wait in its inbox.
    pub is_busy: bool,
    /// Its family.
    pub family: Family,
    /// True if a child of the present group has not ended.
    pub has_open_child: bool,
    /// True if an event of a child has to be delivered to it.
    pub has_events: bool,
}

/// The number of children of a machine in a state and status.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChildCount {
    /// The machine of the children.
    pub machine: String,
    /// The state; `None` before the first transition.
    pub state: Option<String>,
    /// The status.
    pub status: Status,
    /// The number.
    pub count: u64,
}

/// The parent of an instance, or one of its children. A child in another partition is as its last report says: running and without a state until it has
/// ended. A parent in another partition that cannot be read is shown as running and without a state.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Relative {
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
    /// Its state; `None` before the first transition.
    pub state: Option<String>,
    /// Its status.
    pub status: Status,
}

/// The payload of the event for the end or the error of this child.
pub(super) fn child_event(child: &Changes) -> Vec<u8> {
    let Instance { key, state, status, updated_at, .. } = &child.instance;
    json!({ "key": key, "state": state, "status": status, "at": updated_at }).to_string().into_bytes()
}

/// The families of those of these instances that exist.
pub async fn families(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<Vec<FamilyRow>> {
    let rows = conn.batch(&sql::FAMILIES, instances.iter().map(|id| values![id.0]).collect()).await?;
    let read = |row: &Row| -> Result<FamilyRow> {
        Ok(FamilyRow {
            instance: row.instance_id(0)?,
            machine: row.get(1)?,
            key: row.get(2)?,
            status: row.word(3)?,
            state: row.get(4)?,
            is_busy: row.get(5)? || row.get::<i64>(6)? > 0,
            family: row.family(7)?,
            has_open_child: row.get(9)?,
            has_events: row.get(10)?,
        })
    };
    // A row that cannot be decoded affects no other.
    Ok(rows.iter().filter_map(|row| read(row).ok()).collect())
}

/// The children of the instance that have not ended.
pub async fn open_children(conn: &mut Conn<'_>, instance: InstanceId) -> Result<OpenChildren> {
    let rows = conn.rows(&sql::OPEN_CHILDREN, &values![instance.0]).await?;
    let Some(row) = rows.first() else { return Ok(OpenChildren { of_group: false, attached: false }) };
    Ok(OpenChildren { of_group: row.get(0)?, attached: row.get(1)? })
}

/// At most `limit` children of these machines that are to be cancelled with the instance: their machines and keys.
pub async fn to_cancel(conn: &mut Conn<'_>, instance: InstanceId, machines: &[String], limit: u32) -> Result<Vec<(String, String)>> {
    let rows = conn.rows(&sql::CHILDREN_TO_CANCEL, &[instance.0.into(), Value::Texts(machines), i64::from(limit).into()]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// The next instances after `after` that wait for their children or whose children are being cancelled, at most `limit`.
pub async fn from(conn: &mut Conn<'_>, after: InstanceId, limit: u32) -> Result<Vec<InstanceId>> {
    let rows = conn.rows(&sql::FAMILIES_FROM, &values![after.0, i64::from(limit)]).await?;
    rows.iter().map(|row| row.instance_id(0)).collect()
}

/// The next instances after `after` to which an event of a child has to be delivered, at most `limit`.
pub async fn with_events(conn: &mut Conn<'_>, after: InstanceId, limit: u32) -> Result<Vec<InstanceId>> {
    let rows = conn.rows(&sql::CHILD_EVENT_PARENTS, &values![after.0, i64::from(limit)]).await?;
    rows.iter().map(|row| row.instance_id(0)).collect()
}

/// The oldest events of children for the parent, at most `limit`.
pub async fn events(conn: &mut Conn<'_>, parent: InstanceId, limit: u32) -> Result<Vec<ChildEvent>> {
    let rows = conn.rows(&sql::CHILD_EVENTS, &values![parent.0, i64::from(limit)]).await?;
    let read =
        |row: &Row| Ok(ChildEvent { id: row.get(0)?, call: row.call_id(1)?, event: Event { name: row.get(2)?, payload: row.get(3)? } });
    rows.iter().map(read).collect()
}

/// Deletes the events. Returns `false` if another process has deleted one of them.
pub async fn take(conn: &mut Conn<'_>, events: &[i64]) -> Result<bool> {
    let rows = conn.batch(&sql::CHILD_EVENTS_TAKE, events.iter().map(|id| values![*id]).collect()).await?;
    Ok(rows.len() == events.len())
}

/// The number of children of the instance, in one group or in all, by machine, state and status.
pub async fn counts(conn: &mut Conn<'_>, parent: InstanceId, group: Option<i64>) -> Result<Vec<ChildCount>> {
    let rows = conn.rows(&sql::FAMILY_COUNTS, &values![parent.0, group]).await?;
    let read = |row: &Row| {
        Ok(ChildCount {
            machine: row.get(0)?,
            state: row.get(1)?,
            status: row.word(2)?,
            count: u64::try_from(row.get::<i64>(3)?).unwrap_or(0),
        })
    };
    let mut counts = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    // The databases order absent states and texts differently.
    counts.sort_by_cached_key(|count| (count.machine.clone(), count.state.clone(), count.status.as_str()));
    Ok(counts)
}

/// The instance as a relative of another one.
pub async fn relative(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Option<Relative>> {
    let rows = conn.rows(&sql::RELATIVE, &values![instance.0]).await?;
    rows.first().map(relative_of).transpose()
}

/// The parent of the instance; `None` if it has none, if the parent has been pruned, or if it is in another partition.
pub async fn parent_of(conn: &mut Conn<'_>, child: &Instance) -> Result<Option<Relative>> {
    match child.parent {
        Some(Parent { id, partition: None, .. }) => relative(conn, id).await,
        _ => Ok(None),
    }
}

/// The number of children of the instance by machine, state and status. Reads nothing if it has started none.
pub async fn children_of(conn: &mut Conn<'_>, parent: &Instance) -> Result<Vec<ChildCount>> {
    if parent.family == Family::None { Ok(Vec::new()) } else { counts(conn, parent.id, None).await }
}

/// The oldest children of the instance, at most `limit`. Reads nothing if it has started none.
pub async fn first_children(conn: &mut Conn<'_>, parent: &Instance, limit: u32) -> Result<Vec<Relative>> {
    if parent.family == Family::None {
        return Ok(Vec::new());
    }
    let rows = conn.rows(&sql::FIRST_CHILDREN, &values![parent.id.0, i64::from(limit)]).await?;
    rows.iter().map(relative_of).collect()
}

fn relative_of(row: &Row) -> Result<Relative> {
    Ok(Relative { machine: row.get(0)?, key: row.get(1)?, state: row.get(2)?, status: row.word(3)? })
}
