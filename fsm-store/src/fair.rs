//! The due calls of a machine with `fair_by`, by value.

use fsm_core::fair::DueCall;
use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;

use super::claim::words_of;
use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// The values from `from` on for which calls of this machine are scheduled, at most `most`, in their order.
pub async fn values(conn: &mut Conn<'_>, machine: &str, from: &str, most: u32) -> Result<Vec<String>> {
    let rows = conn.rows(&sql::FAIR_VALUES, &values![machine, from, i64::from(most)]).await?;
    rows.iter().map(|row| row.get(0)).collect()
}

/// The first due calls of each value, at most `most` of each priority, without those in `except`.
pub async fn first(
    conn: &mut Conn<'_>,
    machine: &str,
    values: &[String],
    now: Timestamp,
    most: u32,
    except: &[String],
) -> Result<Vec<(String, DueCall)>> {
    let most = i64::from(most) + i64::try_from(except.len()).unwrap_or(0);
    let rows = values.iter().map(|value| values![machine, value.as_str(), now.as_micros(), most]).collect();
    let mut calls = Vec::new();
    for row in conn.batch(&sql::FAIR_FIRST, rows).await? {
        let instance = row.instance_id(1)?;
        if !except.contains(&words_of(instance.0)) {
            calls.push((row.get(0)?, DueCall { instance, priority: row.priority(2)?, due_at: row.time(3)? }));
        }
    }
    Ok(calls)
}

/// Sets the values of instances that this transaction has locked.
pub async fn put(conn: &mut Conn<'_>, instances: impl Iterator<Item = (InstanceId, &str)>) -> Result<()> {
    conn.put(&sql::FAIR_PUT, instances.map(|(instance, value)| values![instance.0, value]).collect()).await
}
