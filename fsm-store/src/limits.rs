//! Limits: their rows, and the claims of attempts that wait for them.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::ids::SessionId;
use fsm_core::limit::{Limit, Rate, Use};
use fsm_core::partition::Partition;
use fsm_core::priority::kept;
use fsm_core::time::{Timestamp, micros};

use super::claim::{Claims, Places, Served, Which, claim};
use super::conn::Conn;
use super::error::{Result, StoreError};
use super::open::Store;
use super::rows::Row;
use super::shares::Purpose;
use super::sql;
use super::values::{Value, values};

/// A limit as it is stored, with its present use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLimit {
    /// The name.
    pub name: String,
    /// The setting that applies.
    pub limit: Limit,
    /// The present use. Without a concurrency, what runs is not counted.
    pub used: Use,
}

/// A limit for a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLimit {
    /// The name.
    pub name: String,
    /// The setting that applies.
    pub limit: Limit,
    /// The setting in the code that was started last; `None` if its text cannot be read.
    pub declared: Option<Limit>,
    /// The operator whose setting applies, and the time of the last change.
    pub changed: (Option<String>, Option<Timestamp>),
    /// The number of calls that run, counted up to the most that was asked for.
    pub running: u32,
    /// The number of calls that are due and wait, counted in the same way.
    pub waiting: u32,
}

/// The due work of one machine that waits for a limit.
#[derive(Debug, Clone, Copy)]
pub struct Part<'p> {
    /// The parts of the machine that the process can run.
    pub served: &'p Served,
    /// The calls to leave out.
    pub except: &'p [String],
}

/// The partition of a claim, and the places that it leaves to other partitions.
#[derive(Debug, Clone, Copy)]
pub struct Home<'h> {
    /// The partition; `None` for a database without partitions.
    pub here: Option<Partition>,
    /// For each bucket, the number of places that are left to other partitions; 0 for all that are not there.
    pub left_to_others: &'h HashMap<String, u32>,
}

/// The attempts that a session claimed under one limit, for each part.
pub type ClaimedParts = Vec<Claims>;

/// Stores the setting that this program's code declares. If it is the same as before, an operator's setting stays. If it has another search field than
/// before, the calls that wait have no value until the next claim.
pub async fn declare(conn: &mut Conn<'_>, name: &str, limit: &Limit, now: Timestamp) -> Result<()> {
    let text = serde_json::to_string(limit).map_err(|error| StoreError::Database(sqlx::Error::Encode(error.into())))?;
    let before = conn.rows(&sql::LIMIT_LOCK_NOW, &values![name]).await?;
    let before = before.first().map(|row| stored(row, 0)).transpose()?;
    let [concurrency, starts, per_us, burst] = columns(limit);
    let row = values![name, concurrency, starts, per_us, burst, text.as_str(), now.as_micros(), limit.by.as_deref()];
    conn.rows(&sql::LIMIT_DECLARE, &row).await?;
    // A limit that is not by value has no buckets. Such a start finds none, by one look into an index.
    if limit.by.is_none() || before.is_some_and(|before| before.limit.by != limit.by) {
        conn.rows(&sql::LIMIT_UNSORT, &values![name]).await?;
    }
    Ok(())
}

/// Changes the setting of a limit in the name of an operator. Returns false if there is no such limit.
pub async fn change(conn: &mut Conn<'_>, name: &str, limit: &Limit, actor: &str, now: Timestamp) -> Result<bool> {
    let [concurrency, starts, per_us, burst] = columns(limit);
    let row = values![name, concurrency, starts, per_us, burst, actor, now.as_micros()];
    Ok(!conn.rows(&sql::LIMIT_CHANGE, &row).await?.is_empty())
}

/// All limits, in alphabetical order.
pub async fn all(conn: &mut Conn<'_>) -> Result<Vec<StoredLimit>> {
    conn.rows(&sql::LIMITS, &[]).await?.iter().map(|row| stored(row, row.count(7)?)).collect()
}

/// All limits for a screen, in alphabetical order. Running and waiting calls are counted up to `most`.
pub async fn shown(conn: &mut Conn<'_>, now: Timestamp, most: u32) -> Result<Vec<ShownLimit>> {
    let rows = conn.rows(&sql::LIMITS_SHOWN, &values![now.as_micros(), i64::from(most)]).await?;
    let shown = |row: &Row| {
        let counted = |one, other| Ok::<_, StoreError>(row.count(one)?.saturating_add(row.count(other)?).min(most));
        let (running, waiting) = (counted(10, 11)?, counted(12, 13)?);
        let StoredLimit { name, limit, used: _ } = stored(row, running)?;
        let declared = row.get::<Option<String>>(7)?.and_then(|text| serde_json::from_str(&text).ok());
        Ok(ShownLimit { name, limit, declared, changed: (row.get(8)?, row.time_if_any(9)?), running, waiting })
    };
    rows.iter().map(shown).collect()
}

/// For each limit, the time at which the first attempt of this machine that waits for it is due, without those in `except`.
pub async fn next_due(conn: &mut Conn<'_>, served: &Served, except: &[String]) -> Result<Vec<(String, Timestamp)>> {
    let machine = Value::from(served.machine.as_str());
    let rows = conn.rows(&sql::NEXT_LIMITED, &[machine, Value::Texts(&served.verbs), Value::Texts(except)]).await?;
    let mut due = Vec::new();
    for row in &rows {
        if let Some(at) = row.time_if_any(1)? {
            due.push((row.get(0)?, at));
        }
    }
    Ok(due)
}

impl Store {
    /// Claims for session `me` attempts that wait for this limit and are due at `now`: as many as may start, and at most `most`. The parts
    /// are served in their order, where `claimed` attempts were claimed under this limit before. Returns `None` if another process claims under
    /// this limit at this moment, or if the limit is gone.
    pub async fn claim_limited(
        &self,
        me: SessionId,
        name: &str,
        parts: &[Part<'_>],
        (claimed, most): (u64, u32),
        now: Timestamp,
    ) -> Result<Option<ClaimedParts>> {
        let parts = parts.iter().map(|part| (part.served, Which::Limited(name, part.except)));
        self.claim_under(me, name, &parts.collect::<Vec<_>>(), (claimed, most), now).await
    }

    /// Claims one attempt that waits for this limit, if it may start. The result is as for [`Store::claim_limited`].
    pub async fn claim_limited_one(
        &self,
        me: SessionId,
        name: &str,
        served: &Served,
        instance: fsm_core::ids::InstanceId,
        now: Timestamp,
    ) -> Result<Option<ClaimedParts>> {
        self.claim_under(me, name, &[(served, Which::LimitedOf(name, instance))], (0, 1), now).await
    }

    /// The lock of the limit's row is taken first and held until the commit. The holder waits for no other lock: instances that are
    /// locked are left out. Commits of other requests never lock the row. So no two transactions wait for each other.
    async fn claim_under(
        &self,
        me: SessionId,
        name: &str,
        parts: &[(&Served, Which<'_>)],
        (before, most): (u64, u32),
        now: Timestamp,
    ) -> Result<Option<ClaimedParts>> {
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let conn = &mut tx.conn();
        let Some(row) = conn.rows(&sql::LIMIT_LOCK, &values![name]).await?.into_iter().next() else {
            tx.rollback().await?;
            return Ok(None);
        };
        let StoredLimit { limit, mut used, .. } = stored(&row, 0)?;
        if limit.by.is_some() {
            // It is by value since a moment ago. The next scan sees that.
            tx.rollback().await?;
            return Ok(Some(Vec::new()));
        }
        used.running = running(conn, name, &limit).await?;
        let room = limit.room(used, now).starts.min(most);
        let mut claimed = Vec::with_capacity(parts.len());
        let mut left = room;
        for (served, which) in parts {
            if left == 0 {
                break;
            }
            let places = Places { most: left, kept: kept(before + u64::from(room - left), left) };
            let claims = claim(conn, me, served, places, now, *which).await?;
            left = left.saturating_sub(claims.count());
            claimed.push(claims);
        }
        let started = room - left;
        if limit.rate.is_some() && started > 0 {
            conn.rows(&sql::LIMIT_NEXT, &values![name, limit.after(used.next_at, started, now).as_micros()]).await?;
        }
        if started == 0 {
            tx.rollback().await?
        } else {
            tx.commit().await?
        }
        Ok(Some(claimed))
    }
}

/// The number of calls that run under a locked limit, with permits; 0 if it has no concurrency.
pub(super) async fn running(conn: &mut Conn<'_>, name: &str, limit: &Limit) -> Result<u32> {
    if limit.concurrency.is_none() {
        return Ok(0);
    }
    let rows = conn.rows(&sql::LIMIT_RUNNING, &values![name]).await?;
    rows.first().map_or(Ok(0), |row| row.count(0))
}

/// The setting as the columns `concurrency`, `starts`, `per_us` and `burst`.
fn columns(limit: &Limit) -> [Option<i64>; 4] {
    let rate = limit.rate;
    [
        limit.concurrency.map(i64::from),
        rate.map(|rate| i64::from(rate.starts)),
        rate.map(|rate| micros(rate.per).max(1)),
        rate.map(|rate| i64::from(rate.burst.max(1))),
    ]
}

/// The limit in the first columns of the row.
pub(super) fn stored(row: &Row, running: u32) -> Result<StoredLimit> {
    let count =
        |column| Ok::<_, StoreError>(row.get::<Option<i64>>(column)?.map(|number| u32::try_from(number.max(0)).unwrap_or(u32::MAX)));
    let rate = match (count(2)?, row.get::<Option<i64>>(3)?, count(4)?) {
        (Some(starts), Some(per_us), burst) => {
            let per = Duration::from_micros(u64::try_from(per_us).unwrap_or(0).max(1));
            Some(Rate { starts, per, burst: burst.unwrap_or(1).max(1) })
        }
        _ => None,
    };
    let limit = Limit { concurrency: count(1)?, rate, by: row.get(6)? };
    Ok(StoredLimit { name: row.get(0)?, limit, used: Use { running, next_at: row.time(5)? } })
}
