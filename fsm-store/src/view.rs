//! The reads for people and screens: an instance, its history, and the numbers of instances.

use std::collections::HashMap;

use fsm_core::call::Attempt;
use fsm_core::changes::Note;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::values;

/// An instance with its newest attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct WithNewest {
    /// Its row.
    pub instance: Instance,
    /// The newest attempt, if it can be decoded.
    pub newest: Option<Attempt>,
    /// The reason why the newest attempt cannot be decoded.
    pub unread: Option<String>,
    /// The progress of the open attempt, as it is stored, with its time.
    pub progress: Option<(Vec<u8>, Timestamp)>,
}

impl WithNewest {
    pub(super) fn of(row: &Row) -> Result<WithNewest> {
        let (instance, progress) = (row.instance(0)?, row.progress(0)?);
        Ok(match row.newest(&instance, 0) {
            Ok(newest) => WithNewest { instance, newest, unread: None, progress },
            Err(why) => WithNewest { instance, newest: None, unread: Some(why.to_string()), progress },
        })
    }

    /// The attempt before the open one, if the open one is not the first.
    pub fn before_open(&self) -> Option<(CallId, u32)> {
        let open = self.newest.as_ref().filter(|open| self.instance.is_open && open.number > 1)?;
        Some((open.call, open.number - 1))
    }
}

/// The instance with this key.
pub async fn find(conn: &mut Conn<'_>, machine: &str, key: &str) -> Result<Option<WithNewest>> {
    let rows = conn.rows(&sql::FIND, &values![machine, key]).await?;
    rows.first().map(WithNewest::of).transpose()
}

/// All attempts of an instance, oldest first, from `newest` backwards.
pub async fn calls(conn: &mut Conn<'_>, newest: &Attempt) -> Result<Vec<Attempt>> {
    let mut by_call: HashMap<CallId, Vec<Attempt>> = HashMap::new();
    for row in conn.rows(&sql::CALLS, &values![newest.call.0, newest.previous.map(|call| call.0)]).await? {
        let attempt = row.attempt(0)?;
        by_call.entry(attempt.call).or_default().push(attempt);
    }
    // The newest attempt may have ended since it was read.
    let of_call = by_call.entry(newest.call).or_default();
    if newest.state.is_live() && of_call.iter().all(|ended| ended.number != newest.number) {
        of_call.push(newest.clone());
    }
    let mut history = Vec::new();
    let mut next = Some(newest.call);
    while let Some(attempts) = next.and_then(|call| by_call.get_mut(&call)) {
        // From the last attempt back to the first. An attempt that was begun after its call had been caught leads to the call of the catch
        // verb first.
        let Some(last) = (0..attempts.len()).max_by_key(|place| attempts[*place].number) else { break };
        let last = attempts.swap_remove(last);
        let before = attempts.iter().max_by_key(|attempt| attempt.number);
        next = if before.is_some_and(|before| before.previous == last.previous) { Some(last.call) } else { last.previous };
        history.push(last);
    }
    history.reverse();
    Ok(history)
}

/// The notes in the history of an instance, oldest first.
pub async fn notes(conn: &mut Conn<'_>, instance: InstanceId) -> Result<Vec<Note>> {
    let rows = conn.rows(&sql::NOTES, &values![instance.0]).await?;
    rows.iter().map(|row| row.note()).collect()
}

/// The number of the newest instances of a machine by status and state, at most `most` for each status, and the statuses that have more.
/// In the second list `Completed` stands for all ended instances.
pub async fn newest_counts(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<(Vec<(Status, Option<String>, u64)>, Vec<Status>)> {
    let (mut counts, mut more) = (Vec::new(), Vec::new());
    for (status, among) in [Status::Running, Status::Error, Status::Completed].into_iter().zip(sql::ALL_KINDS) {
        let mut all = 0;
        for row in conn.rows(&among.states, &values![machine, i64::from(most)]).await? {
            let count = u64::try_from(row.get::<i64>(1)?).unwrap_or(0);
            all += count;
            counts.push((row.word(2)?, row.get(0)?, count));
        }
        if all >= u64::from(most) {
            more.push(status);
        }
    }
    Ok((counts, more))
}

/// The number of instances of a machine by status and state.
pub async fn counts(conn: &mut Conn<'_>, machine: &str) -> Result<Vec<(Status, Option<String>, u64)>> {
    let rows = conn.rows(&sql::COUNTS, &values![machine]).await?;
    rows.iter().map(|row| Ok((row.word(0)?, row.get(1)?, u64::try_from(row.get::<i64>(2)?).unwrap_or(0)))).collect()
}

/// The payload of a call of the instance; `None` if there is no such call.
pub async fn payload(conn: &mut Conn<'_>, instance: InstanceId, call: CallId) -> Result<Option<Vec<u8>>> {
    let rows = conn.rows(&sql::PAYLOAD, &values![call.0, instance.0]).await?;
    Ok(rows.first().map(|row| row.get(0)).transpose()?.flatten())
}
