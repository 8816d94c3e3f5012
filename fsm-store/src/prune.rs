//! Deletion of ended instances and old history.

use std::collections::HashMap;

use fsm_core::call::Attempt;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// An instance that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its id.
    pub instance: InstanceId,
    /// Its newest call, if it had any.
    pub newest: Option<CallId>,
    /// True if it ended before the cutoff and no delayed event waits for it.
    pub is_over: bool,
    /// The number of its notes, requests and waiting events. Each kind is counted up to a limit.
    pub rows: u64,
}

/// A call of an instance that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldCall {
    /// Its id.
    pub call: CallId,
    /// The number of its last attempt. It may have fewer attempts.
    pub last: u32,
    /// The call before it.
    pub previous: Option<CallId>,
    /// The number of its memoised effects, counted up to a limit.
    pub once: u64,
}

impl OldCall {
    /// The maximum number of rows that it has.
    pub fn rows(&self) -> u64 {
        u64::from(self.last) + self.once
    }

    /// True if it has no attempts between the first and the last one and no memoised effects, so that it cannot be shortened.
    pub fn is_short(&self) -> bool {
        self.last <= 2 && self.once == 0
    }

    /// Records that the attempts between the first and the last one were deleted.
    pub fn shortened(&mut self) {
        self.last = self.last.min(2);
    }
}

/// The next `limit` ended instances of `machine` after `after` that were created before `cutoff`. For each, at most `counted` rows of each
/// table are counted.
pub async fn ended(
    conn: &mut Conn<'_>,
    machine: &str,
    cutoff: Timestamp,
    after: InstanceId,
    (limit, counted): (u32, u32),
) -> Result<Vec<Ended>> {
    let values = values![machine, after.0, first_id_at(cutoff), cutoff.as_micros(), i64::from(limit), i64::from(counted)];
    let rows = conn.rows(&sql::ENDED, &values).await?;
    rows.iter()
        .map(|row| {
            let newest = row.get::<Option<Uuid>>(1)?.map(CallId);
            Ok(Ended { instance: row.instance_id(0)?, newest, is_over: row.get(2)?, rows: row.get::<i64>(3)?.unsigned_abs() })
        })
        .collect()
}

/// Those of `instances` that ended before `cutoff` and for which no delayed event waits. PostgreSQL locks them, and leaves out those that
/// another transaction has locked.
pub async fn still_over(conn: &mut Conn<'_>, instances: &[InstanceId], cutoff: Timestamp) -> Result<Vec<InstanceId>> {
    let batch = instances.iter().map(|instance| values![instance.0, cutoff.as_micros()]);
    conn.batch(&sql::STILL_OVER, batch.collect()).await?.iter().map(|row| row.instance_id(0)).collect()
}

/// For each of the calls: the call itself and the calls before it that still exist, newest first, at most `most`. The memoised effects of
/// each are counted up to 5,000.
pub async fn calls_back(conn: &mut Conn<'_>, calls: &[CallId], most: u32) -> Result<HashMap<CallId, Vec<OldCall>>> {
    let mut found: HashMap<CallId, Vec<OldCall>> = HashMap::with_capacity(calls.len());
    let batch = calls.iter().map(|call| values![call.0, i64::from(most)]);
    for row in conn.batch(&sql::CALLS_BACK, batch.collect()).await? {
        let previous = row.get::<Option<Uuid>>(3)?.map(CallId);
        let old = OldCall { call: row.call_id(1)?, last: row.count(2)?, previous, once: row.get::<i64>(4)?.unsigned_abs() };
        found.entry(row.call_id(0)?).or_default().push(old);
    }
    Ok(found)
}

/// The calls that an operator retried after they were caught, each with the call of the catch verb. A walk back through the first attempts
/// does not find the call of the catch verb.
pub async fn calls_beside(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<(CallId, CallId)>> {
    let rows = conn.batch(&sql::CALLS_BESIDE, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.call_id(0)?, row.call_id(1)?))).collect()
}

/// The number of these calls that made a transition.
pub async fn transitions(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<i64> {
    let rows = conn.batch(&sql::TRANSITIONS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| row.get::<bool>(0).map(i64::from)).sum()
}

/// The number of memoised effects of each of the calls, counted up to 5,000.
pub async fn once_counts(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<(CallId, u64)>> {
    let rows = conn.batch(&sql::ONCE_COUNTS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.call_id(0)?, row.get::<i64>(1)?.unsigned_abs()))).collect()
}

/// Deletes at most `limit` attempts of a call between its first one and `last`, the oldest first. Returns for each the call before it.
pub async fn between(conn: &mut Conn<'_>, call: CallId, last: u32, limit: u32) -> Result<Vec<Option<CallId>>> {
    let rows = conn.rows(&sql::PRUNE_BETWEEN, &values![call.0, i64::from(last), i64::from(limit)]).await?;
    rows.iter().map(|row| Ok(row.get::<Option<Uuid>>(0)?.map(CallId))).collect()
}

/// Deletes at most `limit` memoised effects of a call. Returns the number.
pub async fn some_once(conn: &mut Conn<'_>, call: CallId, limit: u32) -> Result<u64> {
    Ok(conn.rows(&sql::PRUNE_SOME_ONCE, &values![call.0, i64::from(limit)]).await?.len() as u64)
}

/// Deletes at most `limit` inbox, history and request rows of an instance. Returns the number.
pub async fn some_of(conn: &mut Conn<'_>, instance: InstanceId, limit: u32) -> Result<u64> {
    let mut left = u64::from(limit);
    for statement in [&sql::PRUNE_SOME_INBOX, &sql::PRUNE_SOME_HISTORY, &sql::PRUNE_SOME_REQUESTS] {
        if left > 0 {
            let limit = i64::try_from(left).expect("it is no more than the limit");
            left -= conn.rows(statement, &values![instance.0, limit]).await?.len() as u64;
        }
    }
    Ok(u64::from(limit) - left)
}

/// Deletes calls with all their attempts and memoised effects.
pub async fn delete_calls(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<()> {
    for statement in [&sql::PRUNE_ONCE_OF, &sql::PRUNE_TRACES_OF, &sql::PRUNE_CALLS_OF] {
        conn.batch(statement, calls.iter().map(|call| values![call.0]).collect()).await?;
    }
    Ok(())
}

/// Deletes these instances with their inbox, requests, history and search fields, but not their calls.
pub async fn delete(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<()> {
    for statement in [
        &sql::PRUNE_INBOX,
        &sql::PRUNE_CHILD_EVENTS,
        &sql::PRUNE_REMOTE_CHILDREN,
        &sql::PRUNE_TRACES,
        &sql::PRUNE_REQUESTS,
        &sql::PRUNE_HISTORY,
        &sql::PRUNE_SEARCH,
        &sql::PRUNE_INSTANCES,
    ] {
        conn.batch(statement, instances.iter().map(|instance| values![instance.0]).collect()).await?;
    }
    Ok(())
}

/// Adds to each instance the number of its transitions whose attempts were deleted.
pub async fn pruned(conn: &mut Conn<'_>, transitions: impl Iterator<Item = (InstanceId, i64)>) -> Result<()> {
    conn.batch(&sql::PRUNED, transitions.map(|(instance, count)| values![instance.0, count]).collect()).await.map(drop)
}

/// The position of a walk through old attempts.
pub type AttemptPlace = (CallId, u32);

/// The next `limit` ended attempts after `after` whose calls were made before `cutoff`.
pub async fn old_attempts(conn: &mut Conn<'_>, after: AttemptPlace, cutoff: Timestamp, limit: u32) -> Result<Vec<Attempt>> {
    let values = values![after.0.0, i64::from(after.1), first_id_at(cutoff), i64::from(limit)];
    conn.rows(&sql::OLD_ATTEMPTS, &values).await?.iter().map(|row| row.attempt(0)).collect()
}

/// Deletes attempts, and whole calls with their memoised effects. Adds to each instance the number of its transitions that lost their
/// attempts.
pub async fn forget(
    conn: &mut Conn<'_>,
    attempts: &[AttemptPlace],
    calls: &[CallId],
    transitions: impl Iterator<Item = (InstanceId, i64)>,
) -> Result<()> {
    let batch = attempts.iter().map(|(call, number)| values![call.0, i64::from(*number)]);
    conn.batch(&sql::PRUNE_ATTEMPTS, batch.collect()).await?;
    delete_calls(conn, calls).await?;
    pruned(conn, transitions).await
}

/// The id of the last of the next `limit` notes after `after`; `None` if there is none.
pub async fn notes_until(conn: &mut Conn<'_>, after: i64, limit: u32) -> Result<Option<i64>> {
    let rows = conn.rows(&sql::NOTES_UNTIL, &values![after, i64::from(limit)]).await?;
    rows.first().map(|row| row.get(0)).transpose().map(Option::flatten)
}

/// Deletes the notes after `after` up to `until` that were made before `cutoff` and belong to live instances of `machine`. Keeps notes
/// about calls that still exist. Returns the number of deleted notes.
pub async fn notes(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, after: i64, until: i64) -> Result<usize> {
    Ok(conn.rows(&sql::PRUNE_NOTES, &values![after, until, cutoff.as_micros(), machine]).await?.len())
}

/// The position of a walk through requests.
pub type RequestPlace = (InstanceId, String);

/// The request `limit` places after `after`; `None` if there are fewer.
pub async fn requests_until(conn: &mut Conn<'_>, after: &RequestPlace, limit: u32) -> Result<Option<RequestPlace>> {
    let rows = conn.rows(&sql::REQUESTS_UNTIL, &values![after.0.0, after.1.as_str(), i64::from(limit)]).await?;
    rows.first().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).transpose()
}

/// Deletes the requests after `after` up to `until` that came before `cutoff` to live instances of `machine`. Keeps requests whose call
/// waits or still exists. Returns the number of deleted requests.
pub async fn requests(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, after: &RequestPlace, until: &RequestPlace) -> Result<usize> {
    let values = values![after.0.0, after.1.as_str(), until.0.0, until.1.as_str(), cutoff.as_micros(), machine];
    Ok(conn.rows(&sql::PRUNE_REQUESTS_OLD, &values).await?.len())
}

/// The position of a walk through memoised effects.
pub type OncePlace = (CallId, String);

/// The memoised effect `limit` places after `after`, of calls made before `cutoff`; `None` if there are fewer.
pub async fn once_until(conn: &mut Conn<'_>, after: &OncePlace, cutoff: Timestamp, limit: u32) -> Result<Option<OncePlace>> {
    let values = values![after.0.0, after.1.as_str(), first_id_at(cutoff), i64::from(limit)];
    conn.rows(&sql::ONCE_UNTIL, &values).await?.first().map(|row| Ok((row.call_id(0)?, row.get(1)?))).transpose()
}

/// Deletes memoised effects after `after` up to `until`, or up to the last call made before `cutoff`, that were stored before `cutoff`.
/// Only those of instances of `machine` without an open or exhausted call, and those of instances that no longer exist. Returns the number
/// of rows.
pub async fn once_old(
    conn: &mut Conn<'_>,
    machine: &str,
    cutoff: Timestamp,
    after: &OncePlace,
    until: Option<&OncePlace>,
) -> Result<usize> {
    let end = first_id_at(cutoff);
    let (call, name) = until.map_or((end, ""), |(call, name)| (call.0, name.as_str()));
    let values = values![after.0.0, after.1.as_str(), call, name, cutoff.as_micros(), machine];
    Ok(conn.rows(&sql::PRUNE_ONCE_OLD, &values).await?.len())
}

/// The lower bound of the ids made at `time`. Ids are UUIDv7, which begin with the time, so ids made earlier are below it.
fn first_id_at(time: Timestamp) -> Uuid {
    let ms = u128::try_from(time.as_micros() / 1000).unwrap_or(0);
    Uuid::from_u128(ms << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_before_a_time_are_below_its_first_one() {
        let now = Timestamp::from(std::time::SystemTime::now());
        let id = Uuid::now_v7();
        assert!(first_id_at(now - std::time::Duration::from_secs(1)) < id);
        assert!(first_id_at(now + std::time::Duration::from_secs(1)) > id);
        assert_eq!(first_id_at(Timestamp::from_micros(i64::MIN)), Uuid::nil());
    }
}
