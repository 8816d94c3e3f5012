//! The sessions of worker processes and their leases.

use std::time::Duration;

use fsm_core::ids::SessionId;
use fsm_core::process::{ProcessIdentity, ProcessPlace};
use fsm_core::time::{Timestamp, micros};

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::open::ServerClock;
use super::rows::Row;
use super::sql;
use super::values::values;

/// A lease that begins or is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The time of the heartbeat.
    pub now: Timestamp,
    /// The lease duration.
    pub duration: Duration,
    /// The end of the lease.
    pub until: Timestamp,
}

/// Another session, with the facts that show whether it has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherSession {
    /// The session.
    pub id: SessionId,
    /// Its process.
    pub process: ProcessIdentity,
    /// The end of its lease.
    pub lease_until: Timestamp,
    /// Its lease duration.
    pub lease: Duration,
    /// The time since its last heartbeat in which other workers with the same lease duration reached the database.
    pub reachable: Duration,
    /// Sessions with the same number serve the same code.
    pub code: i64,
}

/// Creates the session of this process, which serves this code.
pub async fn join(conn: &mut Conn<'_>, process: &ProcessIdentity, code: i64, lease: Lease) -> Result<()> {
    let reachable = reach(conn, lease).await?;
    let place = process.place.as_ref();
    let values = values![
        lease.session.0,
        process.host.as_str(),
        i64::from(process.pid),
        place.and_then(|place| place.machine.as_deref()),
        place.map(|place| place.boot.as_str()),
        place.map(|place| place.namespaces.as_str()),
        place.map(|place| i64::try_from(place.started).unwrap_or(i64::MAX)),
        lease.now.as_micros(),
        micros(lease.duration),
        lease.until.as_micros(),
        reachable,
        code
    ];
    conn.rows(&sql::SESSION_JOIN, &values).await.map(drop)
}

/// Renews the lease, never to an earlier time. Returns `false` if the session no longer exists, because another process has ended it.
pub async fn renew(conn: &mut Conn<'_>, lease: Lease) -> Result<bool> {
    let reachable = reach(conn, lease).await?;
    let rows = conn.rows(&sql::SESSION_RENEW, &values![lease.session.0, lease.until.as_micros(), reachable]).await?;
    Ok(!rows.is_empty())
}

/// Records that this process reaches the database. Returns the reachable time for this lease duration. A gap of more than half a lease
/// between two heartbeats may be an outage and does not count.
async fn reach(conn: &mut Conn<'_>, lease: Lease) -> Result<i64> {
    let rows = conn.rows(&sql::REACHABLE, &values![micros(lease.duration), lease.now.as_micros(), micros(lease.duration / 2)]).await?;
    rows.first().ok_or_else(|| StoreError::Corrupt { what: "a heartbeat was not counted".into() })?.get(0)
}

/// All sessions except this one.
pub async fn others(conn: &mut Conn<'_>, me: SessionId) -> Result<Vec<OtherSession>> {
    conn.rows(&sql::OTHER_SESSIONS, &values![me.0]).await?.iter().map(other).collect()
}

fn other(row: &Row) -> Result<OtherSession> {
    let (boot, namespaces, started): (Option<String>, Option<String>, Option<i64>) = (row.get(4)?, row.get(5)?, row.get(6)?);
    let place = match (boot, namespaces, started) {
        (Some(boot), Some(namespaces), Some(started)) => {
            Some(ProcessPlace { machine: row.get(3)?, boot, namespaces, started: u64::try_from(started).unwrap_or_default() })
        }
        _ => None,
    };
    let pid = u32::try_from(row.get::<i64>(2)?).unwrap_or_default();
    Ok(OtherSession {
        id: SessionId(row.get(0)?),
        process: ProcessIdentity { host: row.get(1)?, pid, place },
        lease_until: row.time(7)?,
        lease: duration(row.get(8)?),
        reachable: duration(row.get(9)?),
        code: row.get(10)?,
    })
}

fn duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}

/// Deletes a session that has ended. Returns `false` if it has renewed its lease since, or another process has ended it.
pub async fn end(conn: &mut Conn<'_>, session: &OtherSession) -> Result<bool> {
    let rows = conn.rows(&sql::SESSION_END, &values![session.id.0, session.lease_until.as_micros()]).await?;
    Ok(!rows.is_empty())
}

/// Stores the number of ended attempts in the session's process whose completion the database does not accept.
pub async fn tell_unreported(conn: &mut Conn<'_>, session: SessionId, unreported: usize) -> Result<()> {
    let unreported = i64::try_from(unreported).unwrap_or(i64::MAX);
    conn.rows(&sql::SESSION_UNREPORTED, &values![session.0, unreported]).await.map(drop)
}

/// The time at which the next attempt that follows a lost one is due. Reads every scheduled attempt.
#[cfg(feature = "testing")]
pub async fn next_after_loss(conn: &mut Conn<'_>) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::NEXT_AFTER_LOSS, &[]).await?;
    rows.first().map(|row| row.time(0)).transpose()
}

/// Deletes the session. Its executing attempts become orphans.
pub async fn leave(conn: &mut Conn<'_>, session: SessionId) -> Result<()> {
    conn.rows(&sql::SESSION_LEAVE, &values![session.0]).await.map(drop)
}

/// The time of the database server; `None` for SQLite, which uses this machine's clock.
pub async fn server_clock(conn: &mut Conn<'_>) -> Result<Option<ServerClock>> {
    if !conn.is_postgres() {
        return Ok(None);
    }
    let rows = conn.rows(&sql::SERVER_CLOCK, &[]).await?;
    let row = rows.first().ok_or_else(|| StoreError::Corrupt { what: "the server shows no time".into() })?;
    Ok(Some(ServerClock { now: row.time(0)?, up_since: row.time(1)? }))
}

/// The earliest end of another session's lease.
pub async fn next_lapse(conn: &mut Conn<'_>, me: SessionId) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::NEXT_LAPSE, &values![me.0]).await?;
    match rows.first() {
        Some(row) => Ok(row.get::<Option<i64>>(0)?.map(Timestamp::from_micros)),
        None => Ok(None),
    }
}

/// Deletes sessions whose lease has expired at `now` and that have no log, so that they execute nothing. Returns the number.
pub async fn delete_expired(conn: &mut Conn<'_>, now: Timestamp) -> Result<u64> {
    let rows = conn.rows(&sql::SESSIONS_DELETE_EXPIRED, &values![now.as_micros()]).await?;
    Ok(rows.len() as u64)
}
