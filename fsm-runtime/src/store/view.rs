//! What people and screens read.

use std::collections::HashMap;

use fsm_core::call::Attempt;
use fsm_core::changes::Note;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql::{self, Among};
use super::values::{Value, values};

/// Which instances a page shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFilter {
    /// Only those of this status.
    pub status: Option<Status>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those that are paused, or that are not.
    pub paused: Option<bool>,
    /// Only those whose error contains this text, in whatever case; of one that is being retried, the error of the attempt before.
    pub error: Option<String>,
    /// Only those whose open attempt follows one that failed or was lost.
    pub retrying: bool,
    /// Only those that have not changed since this moment.
    pub unchanged_since: Option<Timestamp>,
    /// Only those whose key begins so. They are in the order of their keys then.
    pub key_prefix: Option<String>,
    /// Only those after this one.
    pub after: Option<After>,
    /// At most so many.
    pub limit: u32,
    /// The one that was created last comes first; with a prefix of keys, the last key.
    pub newest_first: bool,
    /// Where a condition has no index, look at no more instances of one status than this.
    pub look_at_most: Option<u32>,
}

/// The instance that a page continues after.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum After {
    /// In the order of creation.
    Instance(InstanceId),
    /// In the order of keys.
    Key(String),
}

/// A page of instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// These.
    pub rows: Vec<Instance>,
    /// After which one the next page begins, if there is more to look at.
    pub next: Option<After>,
    /// The page ends there because enough was looked at, not because it is full.
    pub was_cut: bool,
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

/// Instances of a machine in the order of their ids, which is that of their creation, or with a prefix in the order of their keys.
pub async fn page(conn: &mut Conn<'_>, machine: &str, filter: &PageFilter) -> Result<Found> {
    if let Some(prefix) = &filter.key_prefix {
        return by_key(conn, machine, prefix, filter).await;
    }
    let among = among(filter);
    let mut edge = None;
    if let Some(most) = filter.look_at_most.filter(|_| filter.is_picky()) {
        for one in among {
            let there = looked_to(conn, one, machine, filter, most).await?;
            edge = nearer(filter, edge, there);
        }
    }
    let sql = match (among, filter.newest_first) {
        ([one], false) => &one.oldest_first,
        ([one], true) => &one.newest_first,
        ([_, _], false) => &sql::NOT_ENDED_OLDEST_FIRST,
        ([_, _], true) => &sql::NOT_ENDED_NEWEST_FIRST,
        (_, false) => &sql::EVERY_OLDEST_FIRST,
        (_, true) => &sql::EVERY_NEWEST_FIRST,
    };
    let end = edge.map_or(if filter.newest_first { Uuid::nil() } else { Uuid::max() }, |edge| edge.0);
    let values = [
        Value::from(machine),
        filter.beginning().into(),
        // One more than the page takes, to know whether there are more.
        (i64::from(filter.limit) + 1).into(),
        filter.state.as_deref().into(),
        filter.paused.map(i64::from).into(),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
        end.into(),
        filter.retrying.then_some(1).into(),
    ];
    let mut rows = conn.rows(sql, &values).await?.iter().map(|row| row.instance(0)).collect::<Result<Vec<_>>>()?;
    let is_full = rows.len() > filter.limit as usize;
    rows.truncate(filter.limit as usize);
    let last = rows.last().map(|last| last.id).filter(|_| is_full);
    Ok(Found { rows, next: last.or(edge).map(After::Instance), was_cut: last.is_none() && edge.is_some() })
}

/// A page of instances whose keys begin with `prefix`, in the order of their keys.
async fn by_key(conn: &mut Conn<'_>, machine: &str, prefix: &str, filter: &PageFilter) -> Result<Found> {
    let (mut from, mut until) = (prefix.to_owned(), behind_all_with(prefix));
    match &filter.after {
        Some(After::Key(key)) if filter.newest_first => until = key.clone(),
        Some(After::Key(key)) => from = next_key(key),
        _ => {}
    }
    let mut edge = None;
    if let Some(most) = filter.look_at_most.filter(|_| filter.is_picky() || filter.status.is_some()) {
        let sql = if filter.newest_first { &sql::KEY_EDGE_DOWN } else { &sql::KEY_EDGE_UP };
        let rows = conn.rows(sql, &values![machine, from.as_str(), until.as_str(), i64::from(most.max(1)) - 1]).await?;
        edge = if rows.len() < 2 { None } else { Some(rows[0].get::<String>(0)?) };
    }
    match &edge {
        Some(edge) if filter.newest_first => from = edge.clone(),
        Some(edge) => until = next_key(edge),
        None => {}
    }
    let sql = if filter.newest_first { &sql::KEYS_DOWN } else { &sql::KEYS_UP };
    let values = [
        Value::from(machine),
        from.as_str().into(),
        (i64::from(filter.limit) + 1).into(),
        filter.state.as_deref().into(),
        filter.paused.map(i64::from).into(),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
        until.as_str().into(),
        filter.retrying.then_some(1).into(),
        filter.status.map(Status::as_str).into(),
    ];
    let mut rows = conn.rows(sql, &values).await?.iter().map(|row| row.instance(0)).collect::<Result<Vec<_>>>()?;
    let is_full = rows.len() > filter.limit as usize;
    rows.truncate(filter.limit as usize);
    let last = rows.last().map(|last| last.key.clone()).filter(|_| is_full);
    let was_cut = last.is_none() && edge.is_some();
    Ok(Found { rows, next: last.or(edge).map(After::Key), was_cut })
}

/// The first key that can follow `key`: no key contains NUL, so none is between the two.
fn next_key(key: &str) -> String {
    format!("{key}\u{1}")
}

/// A text that is behind every key with this prefix, and not behind any other key that is behind them. Texts are ordered by their bytes, which
/// is the order of their characters.
fn behind_all_with(prefix: &str) -> String {
    let mut rest = prefix;
    while let Some(last) = rest.chars().next_back() {
        rest = &rest[..rest.len() - last.len_utf8()];
        if let Some(next) = (last..=char::MAX).nth(1) {
            return format!("{rest}{next}");
        }
    }
    // A key has at most 255 bytes.
    char::MAX.to_string().repeat(64)
}

impl PageFilter {
    /// Whether rows may be looked at and left out.
    fn is_picky(&self) -> bool {
        let is_of_an_index = self.paused == Some(true) && self.status.is_none();
        self.state.is_some()
            || (self.paused.is_some() && !is_of_an_index)
            || self.error.is_some()
            || self.retrying
            || self.unchanged_since.is_some()
    }

    fn beginning(&self) -> Uuid {
        match self.after {
            Some(After::Instance(after)) => after.0,
            _ if self.newest_first => Uuid::max(),
            _ => Uuid::nil(),
        }
    }
}

/// The kinds of instances that a filter is about, each of which has an index.
fn among(filter: &PageFilter) -> &'static [&'static Among] {
    match filter.status {
        Some(Status::Running) => &[&sql::RUNNING],
        Some(Status::Error) => &[&sql::IN_ERROR],
        Some(Status::Completed) => &[&sql::COMPLETED],
        Some(Status::Cancelled) => &[&sql::CANCELLED],
        None if filter.paused == Some(true) => &[&sql::PAUSED],
        None if filter.retrying => &[&sql::RUNNING],
        // Of those that have ended, none has an error.
        None if filter.error.is_some() => &[&sql::RUNNING, &sql::IN_ERROR],
        None => &ALL,
    }
}

/// Every instance is of one of these kinds.
const ALL: [&Among; 3] = [&sql::RUNNING, &sql::IN_ERROR, &sql::ENDED_SO_FAR];

/// The one of two that comes first.
fn nearer(filter: &PageFilter, one: Option<InstanceId>, other: Option<InstanceId>) -> Option<InstanceId> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if filter.newest_first { one.max(other) } else { one.min(other) }),
        (one, other) => one.or(other),
    }
}

/// The last one that is looked at, if there are more than so many.
async fn looked_to(conn: &mut Conn<'_>, among: &Among, machine: &str, filter: &PageFilter, most: u32) -> Result<Option<InstanceId>> {
    let sql = if filter.newest_first { &among.edge_down } else { &among.edge_up };
    let rows = conn.rows(sql, &values![machine, filter.beginning(), i64::from(most.max(1)) - 1]).await?;
    if rows.len() < 2 { Ok(None) } else { rows[0].instance_id(0).map(Some) }
}

/// How many of the newest instances of a machine there are by status and state, at most `most` of each status; and the statuses of
/// which there are more; `Completed` there stands for all that have ended.
pub async fn newest_counts(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<(Vec<(Status, Option<String>, u64)>, Vec<Status>)> {
    let (mut counts, mut more) = (Vec::new(), Vec::new());
    for (status, among) in [Status::Running, Status::Error, Status::Completed].into_iter().zip(ALL) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_with_a_prefix_are_a_range() {
        let prefixes = ["2026-", "a", "\u{d7ff}", "a\u{10ffff}", "\u{10ffff}", ""];
        let keys =
            ["2026-", "2026-01", "2026.", "2025", "a", "a\u{1}", "a\u{10ffff}\u{10ffff}", "b", "\u{d7ff}x", "\u{e000}", "\u{10ffff}z"];
        for prefix in prefixes {
            for key in keys {
                let is_between = prefix <= key && *key < *behind_all_with(prefix);
                assert_eq!(is_between, key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }
}
