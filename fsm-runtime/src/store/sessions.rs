//! Sessions of worker processes, and the attempts of those that died.

use fsm_core::call::Attempt;
use fsm_core::ids::{CallId, SessionId};
use fsm_core::time::Timestamp;

use super::claim::{Except, Served};
use super::conn::Conn;
use super::error::{Result, StoreError};
use super::open::ServerClock;
use super::rows::Row;
use super::sql;
use super::values::{Value, values};

/// An executing attempt, looked at through its session.
#[derive(Debug, Clone, PartialEq)]
pub struct Orphan {
    /// The machine of its instance.
    pub machine: String,
    /// The instance's name.
    pub key: String,
    /// The attempt.
    pub attempt: Attempt,
}

/// Executing attempts that were found.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Those that can be read.
    pub orphans: Vec<Orphan>,
    /// The calls of those that cannot be.
    pub unread: Vec<(CallId, StoreError)>,
}

/// The session begins, believed until `lease_until`.
pub async fn join(conn: &mut Conn<'_>, session: SessionId, host: &str, pid: u32, now: Timestamp, lease_until: Timestamp) -> Result<()> {
    let values = values![session.0, host, i64::from(pid), now.as_micros(), lease_until.as_micros()];
    conn.rows(&sql::SESSION_JOIN, &values).await.map(drop)
}

/// The session is believed until `lease_until`; never shorter than it was before. `false` when it is not known any more: others have buried it.
pub async fn renew(conn: &mut Conn<'_>, session: SessionId, lease_until: Timestamp) -> Result<bool> {
    let rows = conn.rows(&sql::SESSION_RENEW, &values![session.0, lease_until.as_micros()]).await?;
    Ok(!rows.is_empty())
}

/// When the next attempt is due that follows a lost one. Reads every scheduled attempt.
#[cfg(feature = "testing")]
pub async fn next_after_loss(conn: &mut Conn<'_>) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::NEXT_AFTER_LOSS, &[]).await?;
    rows.first().map(|row| row.time(0)).transpose()
}

/// The session ends. What it still executes is an orphan from now on.
pub async fn leave(conn: &mut Conn<'_>, session: SessionId) -> Result<()> {
    conn.rows(&sql::SESSION_LEAVE, &values![session.0]).await.map(drop)
}

/// At most `limit` executing attempts of the served machines whose session's lease has ended at `now`, or that has no row any more.
/// Those of the calls in `except` are left out.
pub async fn orphans(conn: &mut Conn<'_>, served: &[Served], now: Timestamp, limit: u32, except: &Except) -> Result<Orphans> {
    let machines: Vec<String> = served.iter().map(|served| served.machine.clone()).collect();
    let values = [now.as_micros().into(), i64::from(limit).into(), Value::Words(&machines), Value::Words(&except.calls)];
    each(&conn.rows(&sql::ORPHANS, &values).await?)
}

/// What the session executes.
pub async fn held(conn: &mut Conn<'_>, session: SessionId) -> Result<Orphans> {
    each(&conn.rows(&sql::SESSION_HOLDS, &values![session.0]).await?)
}

/// What the database's clock shows; `None` for SQLite, which has this machine's.
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

/// Sessions whose lease has ended at `now` and that execute nothing are forgotten. Returns how many.
pub async fn delete_expired(conn: &mut Conn<'_>, now: Timestamp) -> Result<u64> {
    let rows = conn.rows(&sql::SESSION_BURY, &values![now.as_micros()]).await?;
    Ok(rows.len() as u64)
}

/// Each by itself: one that cannot be read keeps no other from being settled.
fn each(rows: &[Row]) -> Result<Orphans> {
    let mut all = Orphans::default();
    for row in rows {
        match read(row) {
            Ok(orphan) => all.orphans.push(orphan),
            Err(why) => all.unread.push((row.call_id(2)?, why)),
        }
    }
    Ok(all)
}

fn read(row: &Row) -> Result<Orphan> {
    Ok(Orphan { machine: row.get(0)?, key: row.get(1)?, attempt: row.attempt(2)? })
}
