//! Deleting what ended long ago.

use fsm_core::call::Attempt;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// At most `limit` instances of `machine` after `after` that ended before `cutoff` and for which no delayed event waits. With PostgreSQL
/// they are locked, and those that somebody else has locked are left out.
pub async fn ended(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, after: InstanceId, limit: u32) -> Result<Vec<InstanceId>> {
    let values = values![machine, after.0, first_id_at(cutoff), cutoff.as_micros(), i64::from(limit)];
    let rows = conn.rows(&sql::ENDED, &values).await?;
    rows.iter().map(|row| row.instance_id(0)).collect()
}

/// Deletes these instances and all that belongs to them.
pub async fn delete(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<()> {
    // The instance names the newest of its calls, and each call the one before it: what leads to others goes last.
    for statement in
        [&sql::PRUNE_ONCE, &sql::PRUNE_CALLS, &sql::PRUNE_INBOX, &sql::PRUNE_REQUESTS, &sql::PRUNE_HISTORY, &sql::PRUNE_INSTANCES]
    {
        conn.batch(statement, instances.iter().map(|instance| values![instance.0]).collect()).await?;
    }
    Ok(())
}

/// Deletes at most `limit` of the effects that were memoised before `cutoff` for closed calls of instances of `machine` that rest. Returns
/// how many.
pub async fn closed_once(conn: &mut Conn<'_>, machine: &str, cutoff: Timestamp, limit: u32) -> Result<u64> {
    let values = values![machine, first_id_at(cutoff), cutoff.as_micros(), i64::from(limit)];
    Ok(conn.rows(&sql::ONCE_CLOSED, &values).await?.len() as u64)
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
    for statement in [&sql::PRUNE_ONCE_OF, &sql::PRUNE_CALLS_OF] {
        conn.batch(statement, calls.iter().map(|call| values![call.0]).collect()).await?;
    }
    conn.batch(&sql::PRUNED, transitions.map(|(instance, count)| values![instance.0, count]).collect()).await.map(drop)
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
