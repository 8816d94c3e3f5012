//! Deleting what ended long ago.

use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::{Conn, values};
use super::error::Result;
use super::sql;

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
