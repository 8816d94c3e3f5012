//! Memoised effects: a later attempt of a call does not repeat an effect that an earlier one stored.

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// The result that the call has stored under this name.
pub async fn get(conn: &mut Conn<'_>, call: CallId, name: &str) -> Result<Option<Vec<u8>>> {
    let rows = conn.rows(&sql::ONCE_GET, &values![call.0, name]).await?;
    rows.first().map(|row| row.get(0)).transpose()
}

/// Stores `value` for the call under this name. Returns `false` if the call already has a value under this name, which is kept.
pub async fn put(conn: &mut Conn<'_>, (instance, call): (InstanceId, CallId), name: &str, value: &[u8], now: Timestamp) -> Result<bool> {
    let rows = conn.rows(&sql::ONCE_PUT, &values![call.0, name, value, now.as_micros(), instance.0]).await?;
    Ok(!rows.is_empty())
}
