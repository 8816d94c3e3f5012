//! Deleting what ended long ago.

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
    /// It ended before the cutoff, and no delayed event waits for it.
    pub is_over: bool,
    /// How many notes, requests and waiting events it has, as far as they were counted.
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
    /// How much it remembers, as far as it was counted.
    pub once: u64,
}

impl OldCall {
    /// The most rows that it has.
    pub fn rows(&self) -> u64 {
        u64::from(self.last) + self.once
    }

    /// Whether it has no attempts between its first and its last one, and remembers nothing: it cannot be shortened.
    pub fn is_short(&self) -> bool {
        self.last <= 2 && self.once == 0
    }

    /// The attempts between its first and its last one are gone.
    pub fn shortened(&mut self) {
        self.last = self.last.min(2);
    }
}

/// The next `limit` ended instances of `machine` after `after`, those left out that were created after `cutoff`. Of what belongs to each, at
/// most `counted` rows of a table are counted.
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

/// Those of `instances` that ended before `cutoff` and for which no delayed event waits. With PostgreSQL they are locked, and those that
/// somebody else has locked are left out.
pub async fn still_over(conn: &mut Conn<'_>, instances: &[InstanceId], cutoff: Timestamp) -> Result<Vec<InstanceId>> {
    let batch = instances.iter().map(|instance| values![instance.0, cutoff.as_micros()]);
    conn.batch(&sql::STILL_OVER, batch.collect()).await?.iter().map(|row| row.instance_id(0)).collect()
}

/// Each of the calls and those before it, newest first, at most `most` of each and as far as they are there. What each remembers is counted
/// up to 5,000 rows.
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

/// Calls that no call names as the one before its first attempt, each with the call whose attempt it caught: that was run again by hand.
pub async fn calls_beside(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<(CallId, CallId)>> {
    let rows = conn.batch(&sql::CALLS_BESIDE, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.call_id(0)?, row.call_id(1)?))).collect()
}

/// How many of the calls made a transition.
pub async fn transitions(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<i64> {
    let rows = conn.batch(&sql::TRANSITIONS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| row.get::<bool>(0).map(i64::from)).sum()
}

/// How many rows each of the calls remembers, counted up to 5,000.
pub async fn once_counts(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<Vec<(CallId, u64)>> {
    let rows = conn.batch(&sql::ONCE_COUNTS, calls.iter().map(|call| values![call.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.call_id(0)?, row.get::<i64>(1)?.unsigned_abs()))).collect()
}

/// Deletes at most `limit` attempts of a call between its first one and `last`, the oldest ones. Returns for each the call before it.
pub async fn between(conn: &mut Conn<'_>, call: CallId, last: u32, limit: u32) -> Result<Vec<Option<CallId>>> {
    let rows = conn.rows(&sql::PRUNE_BETWEEN, &values![call.0, i64::from(last), i64::from(limit)]).await?;
    rows.iter().map(|row| Ok(row.get::<Option<Uuid>>(0)?.map(CallId))).collect()
}

/// Deletes at most `limit` rows of what a call remembers. Returns how many.
pub async fn some_once(conn: &mut Conn<'_>, call: CallId, limit: u32) -> Result<u64> {
    Ok(conn.rows(&sql::PRUNE_SOME_ONCE, &values![call.0, i64::from(limit)]).await?.len() as u64)
}

/// Deletes at most `limit` rows of what belongs to an instance beside its calls. Returns how many.
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

/// Deletes calls, with all their attempts and what they remember.
pub async fn delete_calls(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<()> {
    for statement in [&sql::PRUNE_ONCE_OF, &sql::PRUNE_CALLS_OF] {
        conn.batch(statement, calls.iter().map(|call| values![call.0]).collect()).await?;
    }
    Ok(())
}

/// Deletes these instances and all that belongs to them but their calls.
pub async fn delete(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<()> {
    for statement in [&sql::PRUNE_INBOX, &sql::PRUNE_REQUESTS, &sql::PRUNE_HISTORY, &sql::PRUNE_INSTANCES] {
        conn.batch(statement, instances.iter().map(|instance| values![instance.0]).collect()).await?;
    }
    Ok(())
}

/// The instances have so many transitions without attempts more.
pub async fn pruned(conn: &mut Conn<'_>, transitions: impl Iterator<Item = (InstanceId, i64)>) -> Result<()> {
    conn.batch(&sql::PRUNED, transitions.map(|(instance, count)| values![instance.0, count]).collect()).await.map(drop)
}

/// Where a walk through old attempts stands.
pub type AttemptPlace = (CallId, u32);

/// The next `limit` attempts after `after` of calls that were made before `cutoff`.
pub async fn old_attempts(conn: &mut Conn<'_>, after: AttemptPlace, cutoff: Timestamp, limit: u32) -> Result<Vec<Attempt>> {
    let values = values![after.0.0, i64::from(after.1), first_id_at(cutoff), i64::from(limit)];
    conn.rows(&sql::OLD_ATTEMPTS, &values).await?.iter().map(|row| row.attempt(0)).collect()
}

/// Deletes attempts, and whole calls with what they remember; the instances have so many transitions without attempts more.
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

/// The last of the next `limit` notes after `after`; `None` when there is none.
pub async fn notes_until(conn: &mut Conn<'_>, after: i64, limit: u32) -> Result<Option<i64>> {
    let rows = conn.rows(&sql::NOTES_UNTIL, &values![after, i64::from(limit)]).await?;
    rows.first().map(|row| row.get(0)).transpose().map(Option::flatten)
}

/// Deletes the notes after `after` up to `until` that were made before `cutoff` about live instances of `machine`, but for those about calls
/// that are kept. Returns how many.
pub async fn notes(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, after: i64, until: i64) -> Result<usize> {
    Ok(conn.rows(&sql::PRUNE_NOTES, &values![after, until, cutoff.as_micros(), machine]).await?.len())
}

/// Where a walk through requests stands.
pub type RequestPlace = (InstanceId, String);

/// The request `limit` places after `after`; `None` when there are fewer.
pub async fn requests_until(conn: &mut Conn<'_>, after: &RequestPlace, limit: u32) -> Result<Option<RequestPlace>> {
    let rows = conn.rows(&sql::REQUESTS_UNTIL, &values![after.0.0, after.1.as_str(), i64::from(limit)]).await?;
    rows.first().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).transpose()
}

/// Forgets the requests after `after` up to `until` that came before `cutoff` to live instances of `machine`, but for those whose call waits
/// or is kept. Returns how many.
pub async fn requests(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, after: &RequestPlace, until: &RequestPlace) -> Result<usize> {
    let values = values![after.0.0, after.1.as_str(), until.0.0, until.1.as_str(), cutoff.as_micros(), machine];
    Ok(conn.rows(&sql::PRUNE_REQUESTS_OLD, &values).await?.len())
}

/// Where a walk through what calls remember stands.
pub type OncePlace = (CallId, String);

/// What is remembered `limit` places after `after`, of calls made before `cutoff`; `None` when there is less.
pub async fn once_until(conn: &mut Conn<'_>, after: &OncePlace, cutoff: Timestamp, limit: u32) -> Result<Option<OncePlace>> {
    let values = values![after.0.0, after.1.as_str(), first_id_at(cutoff), i64::from(limit)];
    conn.rows(&sql::ONCE_UNTIL, &values).await?.first().map(|row| Ok((row.call_id(0)?, row.get(1)?))).transpose()
}

/// Deletes what is remembered after `after` up to `until`, or up to the last call made before `cutoff`, since before `cutoff`, for closed
/// calls of instances of `machine` that rest. Returns how many rows.
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

/// Ids are UUIDv7, which begin with the time: those that were made before `time` are below this one.
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
