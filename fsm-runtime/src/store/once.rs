//! Memoised effects: what a call did once is not done again by its next attempt.

use fsm_core::ids::CallId;
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// What the call remembers under this name.
pub async fn get(conn: &mut Conn<'_>, call: CallId, name: &str) -> Result<Option<Vec<u8>>> {
    let rows = conn.rows(&sql::ONCE_GET, &values![call.0, name]).await?;
    rows.first().map(|row| row.get(0)).transpose()
}

/// The call remembers `value` from now on. `false` when it remembers one under this name already, which is kept.
pub async fn put(conn: &mut Conn<'_>, call: CallId, name: &str, value: &[u8], now: Timestamp) -> Result<bool> {
    let rows = conn.rows(&sql::ONCE_PUT, &values![call.0, name, value, now.as_micros()]).await?;
    Ok(!rows.is_empty())
}
