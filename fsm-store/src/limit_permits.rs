//! Permits: calls of one partition get places under the limits that count in another one, their home.

use std::collections::{HashMap, HashSet};

use fsm_core::fair::DueCall as FairCall;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::limit::{Limit, Room};
use fsm_core::permit::{Permit, PermitRow};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::claim::{Claims, DueCall, Places, Served, Which, claim};
use super::conn::Conn;
use super::error::Result;
use super::limit_values::{CALLS, Waiting, note_starts, waiting};
use super::limits::{Part, StoredLimit, all, running, stored};
use super::open::Store;
use super::shares::Purpose;
use super::sql;
use super::values::{Value, values};

/// A due call under a limit that counts in another partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The bucket.
    pub bucket: String,
    /// The call and its instance.
    pub due: DueCall,
    /// The same for the choice among all.
    pub call: FairCall,
    /// The row version in which it was read.
    pub row_version: i64,
}

/// The first due calls of a part that wait in these buckets, at most `most` of each bucket and priority.
pub async fn firsts(conn: &mut Conn<'_>, part: Part<'_>, buckets: &[String], most: u32, now: Timestamp) -> Result<Vec<Wanted>> {
    let (machine, verbs, except) = (part.served.machine.as_str(), Value::Texts(&part.served.verbs), Value::Texts(part.except));
    let asked = values![Value::Texts(buckets), machine, verbs, now.as_micros(), i64::from(most.min(CALLS)), except];
    let rows = conn.rows(&sql::LIMIT_FIRST, &asked).await?;
    let mut wanted = Vec::with_capacity(rows.len());
    for row in &rows {
        let (call, instance) = (row.call_id(1).unwrap_or(CallId(Uuid::nil())), row.instance_id(2)?);
        wanted.push(Wanted {
            bucket: row.get(0)?,
            due: DueCall { call, instance, is_limited: true },
            call: FairCall { instance, priority: row.priority(3)?, due_at: row.time(4)? },
            row_version: row.get(5)?,
        });
    }
    Ok(wanted)
}

/// The room of these buckets of one limit, in their home. Without the lock of the limit, this is a guess. Buckets are left out if the limit does not have such
/// ones here: a program with another search field is being started.
pub async fn rooms(conn: &mut Conn<'_>, name: &str, buckets: &[String], now: Timestamp) -> Result<Vec<(String, Room)>> {
    let Some(StoredLimit { limit, used, .. }) = all(conn).await?.into_iter().find(|limit| limit.name == name) else {
        return Ok(Vec::new());
    };
    let buckets = of_kind(name, &limit, buckets);
    if limit.by.is_none() {
        return Ok(buckets.into_iter().map(|bucket| (bucket, limit.room(used, now))).collect());
    }
    let values = waiting(conn, name, &limit, buckets, now).await?;
    Ok(values.into_iter().map(|value| (value.bucket, Room { starts: value.starts, next: value.next })).collect())
}

/// The buckets that the limit has now: its name alone, or those with a value.
fn of_kind(name: &str, limit: &Limit, buckets: &[String]) -> Vec<String> {
    buckets.iter().filter(|bucket| (bucket.as_str() == name) == limit.by.is_none()).cloned().collect()
}

/// The permits of instances after this one that were granted before `before`, in the order of the instances, at most `most`.
pub async fn granted_before(conn: &mut Conn<'_>, after: InstanceId, before: Timestamp, most: u32) -> Result<Vec<Permit>> {
    let rows = conn.rows(&sql::PERMITS_OLD, &values![after.0, before.as_micros(), i64::from(most)]).await?;
    let mut permits = Vec::with_capacity(rows.len());
    for row in &rows {
        permits.push(Permit { instance: row.instance_id(0)?, partition: row.count(1)?, row_version: row.get(2)?, bucket: row.get(3)? });
    }
    Ok(permits)
}

/// The rows of these instances. Those that were deleted are left out.
pub async fn rows(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<HashMap<InstanceId, PermitRow>> {
    let rows = conn.batch(&sql::PERMIT_ROWS, instances.iter().map(|instance| values![instance.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, PermitRow { row_version: row.get(1)?, runs_under: row.get(2)? }))).collect()
}

/// The time after `now` at which the first permit is this old, for tests.
#[cfg(feature = "testing")]
pub async fn next_of_age(conn: &mut Conn<'_>, age: std::time::Duration, now: Timestamp) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::PERMIT_FIRST, &values![(now - age).as_micros()]).await?;
    Ok(rows.first().map(|row| row.time_if_any(0)).transpose()?.flatten().map(|granted_at| granted_at + age))
}

impl Store {
    /// Grants permits for calls of another partition under the limit `name`, as many as may start, in the order of `wanted`. Returns the
    /// instances of those that were granted. Returns `None` if another process claims under this limit at this moment, or if the limit is gone.
    ///
    /// The row of the limit is locked first, and no other lock is waited for.
    pub async fn grant_permits(
        &self,
        name: &str,
        wanted: &[Wanted],
        partition: u32,
        now: Timestamp,
    ) -> Result<Option<HashSet<InstanceId>>> {
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let conn = &mut tx.conn();
        let Some(row) = conn.rows(&sql::LIMIT_LOCK, &values![name]).await?.into_iter().next() else {
            tx.rollback().await?;
            return Ok(None);
        };
        let StoredLimit { limit, mut used, .. } = stored(&row, 0)?;
        let mut asked: Vec<String> = wanted.iter().map(|wanted| wanted.bucket.clone()).collect();
        asked.sort();
        asked.dedup();
        let asked = of_kind(name, &limit, &asked);
        let values = if limit.by.is_some() {
            waiting(conn, name, &limit, asked, now).await?
        } else {
            used.running = running(conn, name, &limit).await?;
            asked.into_iter().map(|bucket| Waiting::of(bucket, &limit, used, now)).collect()
        };
        let mut left: HashMap<&str, u32> = values.iter().map(|value| (value.bucket.as_str(), value.starts)).collect();
        let mut takes = |bucket: &str| left.get_mut(bucket).filter(|left| **left > 0).map(|left| *left -= 1).is_some();
        let mut chosen: Vec<&Wanted> = wanted.iter().filter(|wanted| takes(&wanted.bucket)).collect();
        // All permits are locked in this order.
        chosen.sort_by_key(|wanted| wanted.due.instance);
        let mut permits = Vec::with_capacity(chosen.len());
        for Wanted { bucket, due, row_version, .. } in &chosen {
            permits.push(values![due.instance.0, bucket.as_str(), i64::from(partition), *row_version, now.as_micros()]);
        }
        let rows = conn.batch(&sql::PERMIT_GRANT, permits.into()).await?;
        let granted = rows.iter().map(|row| row.instance_id(0)).collect::<Result<HashSet<_>>>()?;
        let mut started = HashMap::new();
        for wanted in chosen.iter().filter(|wanted| granted.contains(&wanted.due.instance)) {
            let place = values.iter().position(|value| value.bucket == wanted.bucket);
            *started.entry(place.unwrap_or_default()).or_insert(0) += 1;
        }
        if limit.rate.is_some() && !started.is_empty() {
            match limit.by {
                Some(_) => note_starts(conn, name, &limit, &values, &started, now).await?,
                None => {
                    let count = started.values().sum();
                    conn.rows(&sql::LIMIT_NEXT, &values![name, limit.after(used.next_at, count, now).as_micros()]).await.map(drop)?;
                }
            }
        }
        if granted.is_empty() {
            tx.rollback().await?
        } else {
            tx.commit().await?
        }
        Ok(Some(granted))
    }

    /// Claims for session `me` those of these calls of one machine that are as they were read. A permit admits each of them.
    pub async fn claim_permitted(&self, me: SessionId, served: &Served, permitted: &[&Wanted], now: Timestamp) -> Result<Claims> {
        let instances: Vec<InstanceId> = permitted.iter().map(|wanted| wanted.due.instance).collect();
        let buckets: Vec<String> = permitted.iter().map(|wanted| wanted.bucket.clone()).collect();
        let row_versions: Vec<String> = permitted.iter().map(|wanted| wanted.row_version.to_string()).collect();
        let places = Places::from(u32::try_from(permitted.len()).unwrap_or(u32::MAX));
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let which = Which::Permitted(&instances, &buckets, &row_versions);
        let claims = claim(&mut tx.conn(), me, served, places, now, which).await?;
        tx.commit().await?;
        Ok(claims)
    }

    /// Makes later claims with these permits impossible, except those of rows that are locked. Returns the rows of their instances after that.
    pub async fn fence(&self, permits: &[Permit]) -> Result<HashMap<InstanceId, PermitRow>> {
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let conn = &mut tx.conn();
        conn.put(&sql::PERMIT_FENCE, permits.iter().map(|permit| values![permit.instance.0, permit.row_version]).collect()).await?;
        tx.commit().await?;
        let instances: Vec<InstanceId> = permits.iter().map(|permit| permit.instance).collect();
        rows(&mut self.engine_reader().await?.conn(), &instances).await
    }

    /// Deletes the permits of these instances in these buckets for row versions below these. Returns the buckets that have more room now.
    pub async fn release_permits(&self, over: &[(InstanceId, &str, i64)]) -> Result<Vec<String>> {
        let mut over = over.to_vec();
        over.sort();
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let over = over.iter().map(|(instance, bucket, below)| values![instance.0, *bucket, *below]).collect();
        let rows = tx.conn().batch(&sql::PERMIT_RELEASE, over).await?;
        tx.commit().await?;
        rows.iter().map(|row| row.get(0)).collect()
    }
}
