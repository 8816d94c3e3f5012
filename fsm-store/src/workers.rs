//! The worker processes as an operator sees them: their leases, and by their session logs the attempts that they execute.

use std::collections::HashMap;

use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::session_log::{self, ExecutingAttempt};
use super::sql;

/// A worker process that is alive, or one that has ended and whose session row still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its session.
    pub session: SessionId,
    /// The host that it runs on, as the worker reported it.
    pub host: String,
    /// The process id on that host.
    pub pid: i64,
    /// The time at which its session began.
    pub started_at: Timestamp,
    /// The end of its lease.
    pub lease_until: Timestamp,
    /// The number of attempts that it executes.
    pub executing: u64,
    /// The number of its attempts that have ended and whose ends the database does not accept, as of its last heartbeat.
    pub unreported: u64,
}

/// All worker processes whose session rows exist, with those that have ended.
pub async fn workers(conn: &mut Conn<'_>) -> Result<Vec<Worker>> {
    let mut workers = Vec::new();
    for row in conn.rows(&sql::SESSIONS, &[]).await? {
        let session = SessionId(row.get(0)?);
        let executing = session_log::read(conn, session).await?.1.instances().len() as u64;
        let (host, pid, started_at, lease_until) = (row.get(1)?, row.get(2)?, row.time(3)?, row.time(4)?);
        let unreported = u64::try_from(row.get::<i64>(5)?).unwrap_or_default();
        workers.push(Worker { session, host, pid, started_at, lease_until, executing, unreported });
    }
    Ok(workers)
}

/// The end of each session's lease.
pub async fn leases(conn: &mut Conn<'_>) -> Result<HashMap<SessionId, Timestamp>> {
    let rows = conn.rows(&sql::SESSIONS, &[]).await?;
    rows.iter().map(|row| Ok((SessionId(row.get(0)?), row.time(4)?))).collect()
}

/// The executing attempts of the sessions whose lease has expired at `now`.
pub(super) async fn executing(conn: &mut Conn<'_>, now: Timestamp) -> Result<Vec<ExecutingAttempt>> {
    let mut all = Vec::new();
    for session in session_log::dead(conn, now).await? {
        all.extend(session_log::read(conn, session).await?.1.attempts);
    }
    Ok(all)
}
