//! Limits by value: each value of a search field has the limit for itself, in a bucket of its own.
//!
//! A call begins to wait with the name of the limit alone, because not every process that writes it knows the search field. When it is due, it gets
//! the value of its instance: then it waits in the bucket of the value.

use std::collections::HashMap;

use fsm_core::fair::DueCall as FairCall;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::limit::{Group, Limit, Use, admit, bucket, parts as parts_of};
use fsm_core::permit::is_home;
use fsm_core::priority::kept;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::claim::{Claims, Places, Served, Which, claim};
use super::conn::Conn;
use super::error::Result;
use super::limits::{ClaimedParts, Home, Part, stored};
use super::open::Store;
use super::shares::Purpose;
use super::sql;
use super::tx::Tx;
use super::values::{Value, values};

/// The number of values that one look considers.
const VALUES: u32 = 100;
/// The number of calls of each value and priority that a look reads.
pub(super) const CALLS: u32 = 32;
/// The maximum number of calls of each priority that get their value at a time.
pub const ASSIGNED_AT_A_TIME: u32 = 500;
/// The maximum number of rows that a claim deletes because their time has passed.
const FORGOTTEN_AT_A_TIME: i64 = 100;

/// A value for which calls wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) bucket: String,
    used: Use,
    pub(super) starts: u32,
    pub(super) next: Option<Timestamp>,
    /// It has room, and all of it is left to other partitions.
    yields: bool,
}

impl Waiting {
    pub(super) fn of(bucket: String, limit: &Limit, used: Use, now: Timestamp) -> Waiting {
        let room = limit.room(used, now);
        Waiting { bucket, used, starts: room.starts, next: room.next, yields: false }
    }
}

/// The first calls of each value, by the place of the value.
type Firsts = HashMap<usize, Vec<(CallId, FairCall)>>;

/// Some values of a limit for which calls wait, and what may start.
#[derive(Debug, Default)]
pub struct Look {
    values: Vec<Waiting>,
    /// For each part, the first calls of each value that has room, by its place.
    due: Vec<Firsts>,
    /// The bucket from which the next look continues; `None` after the last value.
    pub next_from: Option<String>,
}

impl Look {
    /// The calls that may start, with their parts.
    pub fn startable(&self) -> impl Iterator<Item = (usize, CallId, InstanceId)> {
        let of_part =
            |(part, due): (usize, &Firsts)| due.values().flatten().map(|(call, due)| (part, *call, due.instance)).collect::<Vec<_>>();
        self.due.iter().enumerate().flat_map(of_part)
    }

    /// The buckets that have no room, each with true if others have it.
    pub fn full(&self) -> impl Iterator<Item = (&str, bool)> {
        self.values.iter().filter(|value| value.starts == 0).map(|value| (value.bucket.as_str(), value.yields))
    }

    /// The time at which the rate admits the next call of a value without room, as far as it is known.
    pub fn next(&self) -> Option<Timestamp> {
        self.values.iter().filter_map(|value| value.next).min()
    }
}

/// The range of the buckets of a limit, and the first bucket behind another one.
pub fn all_buckets(limit: &str) -> (String, String) {
    (bucket(limit, ""), format!("{limit}>"))
}

/// Looks at the values of a limit from the bucket `from` on, of those that count here: what may start in each, and the first calls of the parts that are
/// due. Without the lock of the limit, this is a guess.
pub async fn look(
    conn: &mut Conn<'_>,
    (name, limit): (&str, &Limit),
    parts: &[Part<'_>],
    from: &str,
    home: Home<'_>,
    now: Timestamp,
) -> Result<Look> {
    let (mut buckets, next_from) = buckets(conn, name, from).await?;
    buckets.retain(|bucket| is_home(home.here, bucket));
    let mut values = waiting(conn, name, limit, buckets, now).await?;
    for value in &mut values {
        let left = value.starts.saturating_sub(home.left_to_others.get(&value.bucket).copied().unwrap_or(0));
        value.yields = left == 0 && value.starts > 0;
        value.starts = left;
    }
    let due = due(conn, &values, parts, now).await?;
    Ok(Look { values, due, next_from })
}

/// Some buckets of a limit for which calls wait, from `from` on, and the bucket from which the next ones follow.
pub async fn buckets(conn: &mut Conn<'_>, name: &str, from: &str) -> Result<(Vec<String>, Option<String>)> {
    let (_, end) = all_buckets(name);
    let rows = conn.rows(&sql::LIMIT_BUCKETS, &values![from, end.as_str(), i64::from(VALUES)]).await?;
    let buckets: Vec<String> = rows.iter().map(|row| row.get(0)).collect::<Result<_>>()?;
    let next_from = buckets.last().filter(|_| buckets.len() == VALUES as usize).map(|last| format!("{last}\u{1}"));
    Ok((buckets, next_from))
}

/// The use of these buckets. Calls that began before the limit was by value count for each.
pub(super) async fn waiting(conn: &mut Conn<'_>, name: &str, limit: &Limit, buckets: Vec<String>, now: Timestamp) -> Result<Vec<Waiting>> {
    if buckets.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.rows(&sql::LIMIT_RUNNING_WITHOUT_VALUE, &values![name]).await?;
    let alone = rows.first().map_or(Ok(0), |row| row.count(0))?;
    let most = i64::from(limit.concurrency.unwrap_or(0));
    let asked = buckets.iter().map(|bucket| values![bucket.as_str(), name, parts_of(bucket).1.unwrap_or_default(), most]).collect();
    let mut values = Vec::with_capacity(buckets.len());
    for row in conn.batch(&sql::LIMIT_USES, asked).await? {
        let next_at = row.time_if_any(2)?.unwrap_or(Timestamp::from_micros(0));
        let used = Use { running: row.count(1)?.saturating_add(alone), next_at };
        values.push(Waiting::of(row.get(0)?, limit, used, now));
    }
    Ok(values)
}

/// For each part, the first calls of the values that have room.
async fn due(conn: &mut Conn<'_>, values: &[Waiting], parts: &[Part<'_>], now: Timestamp) -> Result<Vec<Firsts>> {
    let open: Vec<String> = values.iter().filter(|value| value.starts > 0).map(|value| value.bucket.clone()).collect();
    let most = values.iter().map(|value| value.starts).max().unwrap_or(0).min(CALLS);
    let places: HashMap<&str, usize> = values.iter().enumerate().map(|(place, value)| (value.bucket.as_str(), place)).collect();
    let mut all = Vec::with_capacity(parts.len());
    for part in parts.iter().filter(|_| !open.is_empty()) {
        let (machine, verbs, except) = (part.served.machine.as_str(), Value::Texts(&part.served.verbs), Value::Texts(part.except));
        let asked = values![Value::Texts(&open), machine, verbs, now.as_micros(), i64::from(most), except];
        let mut due = Firsts::new();
        for row in conn.rows(&sql::LIMIT_FIRST, &asked).await? {
            let Some(place) = places.get(row.get::<String>(0)?.as_str()) else { continue };
            // A call whose id cannot be read is claimed and released, as under any limit, and left out for a while.
            let call = row.call_id(1).unwrap_or(CallId(Uuid::nil()));
            let first = FairCall { instance: row.instance_id(2)?, priority: row.priority(3)?, due_at: row.time(4)? };
            due.entry(*place).or_default().push((call, first));
        }
        all.push(due);
    }
    Ok(all)
}

impl Store {
    /// Gives the due calls of these parts that wait for limit `name` and have no value yet that of their instance in `field`. Returns the number of
    /// calls; `None` if another process claims under this limit at this moment.
    pub async fn assign_values(&self, name: &str, field: &str, parts: &[Part<'_>], now: Timestamp) -> Result<Option<usize>> {
        let Some((mut tx, _)) = self.locked(name, field).await? else { return Ok(None) };
        let mut assigned = 0;
        for part in parts {
            let (machine, except) = (part.served.machine.as_str(), Value::Texts(part.except));
            let asked = values![name, machine, field, now.as_micros(), i64::from(ASSIGNED_AT_A_TIME), except];
            assigned += tx.conn().rows(&sql::LIMIT_ASSIGN_VALUES, &asked).await?.len();
        }
        tx.commit().await?;
        Ok(Some(assigned))
    }

    /// The same for the call of one instance.
    pub async fn assign_value(&self, name: &str, field: &str, instance: InstanceId) -> Result<Option<usize>> {
        let Some((mut tx, _)) = self.locked(name, field).await? else { return Ok(None) };
        let assigned = tx.conn().rows(&sql::LIMIT_ASSIGN_VALUE, &values![name, instance.0, field]).await?.len();
        tx.commit().await?;
        Ok(Some(assigned))
    }

    /// Claims for session `me` due calls of values from the bucket `from` on: of each value as many as may start, and at most `most` together; with
    /// `only`, that of this instance. The parts are served in their order, where `claimed` attempts were claimed under this limit before.
    /// Returns `None` if another process claims under this limit at this moment.
    pub async fn claim_limited_by_value(
        &self,
        me: SessionId,
        (name, field): (&str, &str),
        parts: &[Part<'_>],
        (from, only): (&str, Option<InstanceId>),
        (before, most): (u64, u32),
        (home, now): (Home<'_>, Timestamp),
    ) -> Result<Option<ClaimedParts>> {
        let Some((mut tx, limit)) = self.locked(name, field).await? else { return Ok(None) };
        let conn = &mut tx.conn();
        let mut look = look(conn, (name, &limit), parts, from, home, now).await?;
        let (mut claimed, mut started) = (Vec::with_capacity(parts.len()), HashMap::new());
        let mut left = most;
        for (part, due) in parts.iter().zip(&look.due) {
            let is_wanted = |call: &FairCall| only.is_none_or(|only| only == call.instance);
            let due_in = |place| due.get(&place).into_iter().flatten().map(|(_, call)| *call).filter(is_wanted).collect();
            let groups = look.values.iter().enumerate().map(|(place, value)| Group { starts: value.starts, due: due_in(place) });
            let admitted = admit(&groups.collect::<Vec<_>>(), left, kept(before + u64::from(most - left), left));
            let claims = claim_admitted(conn, me, part.served, &look.values, &admitted, now).await?;
            for (place, count) in starts_of(&claims, &admitted) {
                look.values[place].starts = look.values[place].starts.saturating_sub(count);
                *started.entry(place).or_insert(0) += count;
            }
            left = left.saturating_sub(claims.count());
            claimed.push(claims);
        }
        if limit.rate.is_some() && !started.is_empty() {
            note_starts(conn, name, &limit, &look.values, &started, now).await?;
        }
        if started.is_empty() {
            tx.rollback().await?
        } else {
            tx.commit().await?
        }
        Ok(Some(claimed))
    }

    /// Begins a transaction with the lock of the limit. `None` if another process has it, or if the limit is not by this field any more.
    async fn locked(&self, name: &str, field: &str) -> Result<Option<(Tx, Limit)>> {
        let mut tx = self.begin_for(Purpose::Engine).await?;
        let locked = tx.conn().rows(&sql::LIMIT_LOCK, &values![name]).await?;
        let limit = locked.first().map(|row| stored(row, 0)).transpose()?.map(|stored| stored.limit);
        match limit.filter(|limit| limit.by.as_deref() == Some(field)) {
            Some(limit) => Ok(Some((tx, limit))),
            None => {
                tx.rollback().await?;
                Ok(None)
            }
        }
    }
}

async fn claim_admitted(
    conn: &mut Conn<'_>,
    me: SessionId,
    served: &Served,
    values: &[Waiting],
    admitted: &[(usize, InstanceId)],
    now: Timestamp,
) -> Result<Claims> {
    if admitted.is_empty() {
        return Ok(Claims::default());
    }
    let (buckets, instances): (Vec<_>, Vec<_>) =
        admitted.iter().map(|(place, instance)| (values[*place].bucket.clone(), *instance)).unzip();
    let places = Places::from(u32::try_from(admitted.len()).unwrap_or(u32::MAX));
    claim(conn, me, served, places, now, Which::Buckets(&instances, &buckets)).await
}

/// The number of claimed attempts of each value.
fn starts_of(claims: &Claims, admitted: &[(usize, InstanceId)]) -> HashMap<usize, u32> {
    let places: HashMap<_, _> = admitted.iter().map(|(place, instance)| (*instance, *place)).collect();
    let claimed = claims.claimed.iter().map(|claimed| claimed.instance.id).chain(claims.unread.iter().map(|(due, _)| due.instance));
    let mut starts = HashMap::new();
    for place in claimed.filter_map(|instance| places.get(&instance)) {
        *starts.entry(*place).or_insert(0) += 1;
    }
    starts
}

/// Writes the time of the next start of each value, and deletes values whose time has passed.
pub(super) async fn note_starts(
    conn: &mut Conn<'_>,
    name: &str,
    limit: &Limit,
    values: &[Waiting],
    started: &HashMap<usize, u32>,
    now: Timestamp,
) -> Result<()> {
    let next = |(place, count): (&usize, &u32)| {
        let Waiting { bucket, used, .. } = &values[*place];
        values![name, parts_of(bucket).1.unwrap_or_default(), limit.after(used.next_at, *count, now).as_micros()]
    };
    conn.put(&sql::LIMIT_VALUE_NEXT, started.iter().map(next).collect()).await?;
    conn.rows(&sql::LIMIT_VALUES_PAST, &values![name, now.as_micros(), FORGOTTEN_AT_A_TIME]).await.map(drop)
}
