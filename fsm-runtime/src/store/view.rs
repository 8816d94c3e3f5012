//! What people and screens read.

use std::collections::HashMap;

use fsm_core::call::Attempt;
use fsm_core::changes::Note;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::{Conn, Value, values};
use super::error::Result;
use super::sql;

/// Which instances a page shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFilter {
    /// Only those of this status.
    pub status: Option<Status>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those that are paused, or that are not.
    pub paused: Option<bool>,
    /// Only those whose error contains this text, in whatever case.
    pub error: Option<String>,
    /// Only those that have not changed since this moment.
    pub unchanged_since: Option<Timestamp>,
    /// Only those after this one.
    pub after: Option<InstanceId>,
    /// At most so many.
    pub limit: u32,
}

/// The instance of this name.
pub async fn find(conn: &mut Conn<'_>, machine: &str, key: &str) -> Result<Option<Instance>> {
    let rows = conn.rows(&sql::FIND, &values![machine, key]).await?;
    rows.first().map(|row| row.instance(0)).transpose()
}

/// Every attempt of an instance, oldest first, from its `newest` call backwards.
pub async fn calls(conn: &mut Conn<'_>, newest: CallId) -> Result<Vec<Attempt>> {
    let mut by_call: HashMap<CallId, Vec<Attempt>> = HashMap::new();
    for row in conn.rows(&sql::CALLS, &values![newest.0]).await? {
        let attempt = row.attempt(0)?;
        by_call.entry(attempt.call).or_default().push(attempt);
    }
    let mut history = Vec::new();
    let mut next = Some(newest);
    while let Some(attempts) = next.and_then(|call| by_call.get_mut(&call)) {
        // From the last attempt back to the first; where one was begun after the call had been caught, by way of the catching call.
        let Some(last) = (0..attempts.len()).max_by_key(|place| attempts[*place].number) else { break };
        let last = attempts.swap_remove(last);
        let before = attempts.iter().max_by_key(|attempt| attempt.number);
        next = if before.is_some_and(|before| before.previous == last.previous) { Some(last.call) } else { last.previous };
        history.push(last);
    }
    history.reverse();
    Ok(history)
}

/// What an instance's history keeps besides attempts, oldest first.
pub async fn notes(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<Note>> {
    let rows = conn.rows(&sql::NOTES, &values![instance.0]).await?;
    rows.iter().map(|row| row.note()).collect()
}

/// Instances of a machine in the order of their ids, which is that of their creation.
pub async fn page(conn: &mut Conn<'_>, machine: &str, filter: &PageFilter) -> Result<Vec<Instance>> {
    let after = filter.after.map_or(Uuid::nil(), |after| after.0);
    let mut values = vec![
        machine.into(),
        after.into(),
        i64::from(filter.limit).into(),
        filter.state.as_deref().into(),
        Value::from(filter.paused.map(i64::from)),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
    ];
    let sql = if filter.status == Some(Status::Error) {
        &sql::PAGE_IN_ERROR
    } else {
        values.push(filter.status.map(Status::as_str).into());
        &sql::PAGE
    };
    conn.rows(sql, &values).await?.iter().map(|row| row.instance(0)).collect()
}

/// How many instances a machine has by status and state.
pub async fn counts(conn: &mut Conn<'_>, machine: &str) -> Result<Vec<(Status, Option<String>, u64)>> {
    let rows = conn.rows(&sql::COUNTS, &values![machine]).await?;
    rows.iter().map(|row| Ok((row.word(0)?, row.get(1)?, u64::try_from(row.get::<i64>(2)?).unwrap_or(0)))).collect()
}

/// The payload of a call; `None` when there is no such call.
pub async fn payload(conn: &mut Conn<'_>, call: CallId) -> Result<Option<Vec<u8>>> {
    let rows = conn.rows(&sql::PAYLOAD, &values![call.0]).await?;
    Ok(rows.first().map(|row| row.get(0)).transpose()?.flatten())
}
