//! The door: all that the database ever learns about an instance goes through `write`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use fsm_core::changes::{Changes, Close, Open, Payload, TimerChange};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::fit;
use fsm_core::retry::Budget;
use fsm_core::time::{Timestamp, micros};
use uuid::Uuid;

use super::conn::{Conn, Value, values};
use super::error::{Result, StoreError};
use super::rows::Row;
use super::sealed::{self, fit_text};
use super::sql;

/// What became of one member of a batch.
#[derive(Clone, PartialEq, Eq)]
pub enum Written {
    /// All of it is written.
    Done {
        /// The payload of the call whose first attempt it opened, wherever that came from.
        payload: Option<Vec<u8>>,
    },
    /// What it was decided on has changed meanwhile, and nothing of it is written.
    Outdated,
}

/// All but what the payload says.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Done { payload: Some(payload) } => write!(f, "Done with a payload of {} bytes", payload.len()),
            Written::Done { payload: None } => f.write_str("Done"),
            Written::Outdated => f.write_str("Outdated"),
        }
    }
}

/// Writes each of the `changes`, or nothing of it: `Outdated` when its attempt is no longer as expected, its timer is gone, or another
/// instance has its key. The instances are distinct, and those that exist are locked by this transaction.
pub async fn write(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<Vec<Written>> {
    let outdated = guards(conn, changes).await?;
    let valid: Vec<&Changes> =
        changes.iter().enumerate().filter(|(place, _)| !outdated.contains(place)).map(|(_, change)| *change).collect();
    save(conn, &valid).await?;
    let payloads = payloads(conn, &valid).await?;
    open(conn, &valid, &payloads).await?;
    timers(conn, &valid).await?;
    remember(conn, &valid).await?;
    let mut payloads = payloads.into_iter();
    let written = (0..changes.len()).map(|place| match outdated.contains(&place) {
        true => Written::Outdated,
        false => Written::Done { payload: payloads.next().flatten().map(Cow::into_owned) },
    });
    Ok(written.collect())
}

/// The places of those members whose guard fails. Of the guards only the last one of a member writes, so that a member that fails wrote nothing.
async fn guards(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<HashSet<usize>> {
    let mut outdated = HashSet::new();

    let fired: Vec<(usize, Uuid)> = changes.iter().enumerate().filter_map(|(place, change)| Some((place, change.fired()?.0))).collect();
    let mut there = HashSet::new();
    for row in conn.batch(&sql::TIMER_EXISTS, fired.iter().map(|(_, timer)| values![*timer]).collect()).await? {
        there.insert(row.get::<Uuid>(0)?);
    }
    outdated.extend(fired.iter().filter(|(_, timer)| !there.contains(timer)).map(|(place, _)| *place));

    let closes: Vec<_> = changes
        .iter()
        .enumerate()
        .filter(|(place, _)| !outdated.contains(place))
        .filter_map(|(place, change)| Some((place, change.close.as_ref()?)))
        .collect();
    let errors: Vec<_> = closes.iter().map(|(_, close)| close.error.as_deref().map(fit_text)).collect();
    let rows = closes.iter().zip(&errors).map(|((_, close), error)| {
        values![
            close.call.0,
            i64::from(close.number),
            close.expected.as_str(),
            close.held_by.map(|session| session.0),
            close.becomes.as_str(),
            close.finished_at.as_micros(),
            error.as_deref(),
        ]
    });
    outdated.extend(close(conn, &closes, rows.collect()).await?);

    let rescheduled = rescheduled(conn, changes, &outdated).await?;
    outdated.extend(rescheduled);

    let mut new: Vec<_> = changes.iter().enumerate().filter(|(place, change)| change.is_new && !outdated.contains(place)).collect();
    new.sort_by_key(|(_, change)| (&change.instance.machine, &change.instance.key));
    let mut last = None;
    new.retain(|(place, change)| {
        let name = Some((&change.instance.machine, &change.instance.key));
        let is_first = last != name;
        last = name;
        is_first || !outdated.insert(*place)
    });
    let errors: Vec<_> = new.iter().map(|(_, change)| change.instance.error.as_deref().map(fit_text)).collect();
    let rows = new.iter().zip(&errors).map(|((_, change), error)| {
        let instance = &change.instance;
        values![
            instance.id.0,
            instance.machine.as_str(),
            instance.key.as_str(),
            instance.status.as_str(),
            instance.state.as_deref(),
            instance.paused,
            instance.version,
            instance.record.as_deref(),
            instance.newest.map(|(call, _)| call.0),
            instance.newest.map(|(_, attempt)| i64::from(attempt)),
            instance.is_open,
            error.as_deref(),
            instance.inbox_head,
            instance.inbox_tail,
            instance.created_at.as_micros(),
            instance.updated_at.as_micros(),
        ]
    });
    outdated.extend(create(conn, &new, rows.collect()).await?);
    Ok(outdated)
}

/// Ends attempts, and gives the places of those that were not as expected.
async fn close(conn: &mut Conn<'_>, closes: &[(usize, &Close)], rows: Vec<[Value<'_>; 7]>) -> Result<Vec<usize>> {
    let key = |row: &Row| Ok((row.call_id(0)?, row.count(1)?));
    let is_among = |keys: &HashSet<(CallId, u32)>, close: &Close| keys.contains(&(close.call, close.number));
    if conn.is_postgres() {
        let closed = conn.batch(&sql::CLOSE, rows.into()).await?.iter().map(key).collect::<Result<HashSet<_>>>()?;
        return Ok(closes.iter().filter(|(_, close)| !is_among(&closed, close)).map(|(place, _)| *place).collect());
    }
    let stale = conn.batch(&sql::STALE, rows.clone().into()).await?.iter().map(key).collect::<Result<HashSet<_>>>()?;
    let kept = rows.into_iter().zip(closes).filter(|(_, (_, close))| !is_among(&stale, close)).map(|(row, _)| row);
    conn.batch(&sql::CLOSE, kept.collect()).await?;
    Ok(closes.iter().filter(|(_, close)| is_among(&stale, close)).map(|(place, _)| *place).collect())
}

/// Creates instances, and gives the places of those whose key another has.
async fn create(conn: &mut Conn<'_>, new: &[(usize, &&Changes)], rows: Vec<[Value<'_>; 16]>) -> Result<Vec<usize>> {
    let id = |row: &Row| row.instance_id(0);
    if conn.is_postgres() {
        let created = conn.batch(&sql::CREATE, rows.into()).await?.iter().map(id).collect::<Result<HashSet<_>>>()?;
        return Ok(new.iter().filter(|(_, change)| !created.contains(&change.instance.id)).map(|(place, _)| *place).collect());
    }
    let taken = conn.batch(&sql::TAKEN, rows.clone().into()).await?.iter().map(id).collect::<Result<HashSet<_>>>()?;
    let free = rows.into_iter().zip(new).filter(|(_, (_, change))| !taken.contains(&change.instance.id)).map(|(row, _)| row);
    conn.batch(&sql::CREATE, free.collect()).await?;
    Ok(new.iter().filter(|(_, change)| taken.contains(&change.instance.id)).map(|(place, _)| *place).collect())
}

/// The rows of instances that exist.
async fn save(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<()> {
    let old: Vec<_> = changes.iter().filter(|change| !change.is_new).map(|change| &change.instance).collect();
    let errors: Vec<_> = old.iter().map(|instance| instance.error.as_deref().map(fit_text)).collect();
    let batch = old.iter().zip(&errors).map(|(instance, error)| {
        values![
            instance.id.0,
            instance.status.as_str(),
            instance.state.as_deref(),
            instance.paused,
            instance.version,
            instance.record.as_deref(),
            instance.newest.map(|(call, _)| call.0),
            instance.newest.map(|(_, attempt)| i64::from(attempt)),
            instance.is_open,
            error.as_deref(),
            instance.inbox_head,
            instance.inbox_tail,
            instance.updated_at.as_micros(),
        ]
    });
    conn.batch(&sql::SAVE, batch.collect()).await.map(drop)
}

/// Puts events into the inbox and takes others out, and gives the payload of the call that each member opens.
async fn payloads<'a>(conn: &mut Conn<'_>, changes: &[&'a Changes]) -> Result<Vec<Option<Cow<'a, [u8]>>>> {
    let waits: Vec<_> = changes.iter().filter_map(|change| Some((*change, change.waits.as_ref()?))).collect();
    let mut outlooks = Vec::with_capacity(waits.len());
    for (_, waits) in &waits {
        outlooks.push(json(waits.outlook.as_ref())?);
    }
    let puts = waits.iter().zip(&outlooks).map(|((change, waits), outlook)| {
        values![
            change.instance.id.0,
            waits.position,
            waits.call.0,
            waits.event.name.as_str(),
            waits.event.payload.as_slice(),
            change.instance.updated_at.as_micros(),
            outlook.as_deref(),
        ]
    });
    conn.batch(&sql::INBOX_PUT, puts.collect()).await?;
    let lost = changes.iter().filter(|change| change.is_outlook_lost).map(|change| &change.instance);
    conn.batch(&sql::OUTLOOK_LOST, lost.map(|instance| values![instance.id.0, instance.inbox_tail - 1]).collect()).await?;

    let takes = changes.iter().filter_map(|change| {
        let taken = change.inbox_taken.as_ref()?;
        Some(values![change.instance.id.0, taken.start, taken.end])
    });
    let mut taken: HashMap<(InstanceId, i64), Vec<u8>> = HashMap::new();
    for row in conn.batch(&sql::INBOX_TAKE, takes.collect()).await? {
        taken.insert((row.instance_id(0)?, row.get(1)?), row.get(2)?);
    }

    let opened = || changes.iter().map(|change| change.open.as_ref().and_then(|open| Some((open, open.payload.as_ref()?))));
    let caught = opened().flatten().filter_map(|(_, payload)| match payload {
        Payload::Caught { call, .. } => Some(values![call.0]),
        _ => None,
    });
    let mut exhausted: HashMap<CallId, Option<Vec<u8>>> = HashMap::new();
    for row in conn.batch(&sql::PAYLOADS, caught.collect()).await? {
        exhausted.insert(row.call_id(0)?, row.get(1)?);
    }

    let mut payloads = Vec::with_capacity(changes.len());
    for opened in opened() {
        payloads.push(match opened {
            None => None,
            Some((_, Payload::Bytes(bytes))) => Some(Cow::Borrowed(bytes.as_slice())),
            Some((open, Payload::Inbox(position))) => Some(Cow::Owned(waited(&mut taken, open, *position)?)),
            Some((_, Payload::Caught { call, error, attempts })) => {
                Some(Cow::Owned(sealed::catch(*call, exhausted.remove(call).flatten().as_deref(), error, *attempts)))
            }
        });
    }
    Ok(payloads)
}

fn waited(taken: &mut HashMap<(InstanceId, i64), Vec<u8>>, open: &Open, position: i64) -> Result<Vec<u8>> {
    let instance = open.attempt.instance;
    let missing = || StoreError::Corrupt { what: format!("no event waits for instance {instance} at position {position}") };
    taken.remove(&(instance, position)).ok_or_else(missing)
}

/// Gives scheduled attempts another retry state, and the places of those that are scheduled no more.
async fn rescheduled(conn: &mut Conn<'_>, changes: &[&Changes], outdated: &HashSet<usize>) -> Result<Vec<usize>> {
    let valid = changes.iter().enumerate().filter(|(place, _)| !outdated.contains(place));
    let asked: Vec<_> = valid.filter_map(|(place, change)| Some((place, change.budget.as_ref()?))).collect();
    let mut policies = Vec::with_capacity(asked.len());
    for (_, (_, _, budget)) in &asked {
        policies.push(policy_text(budget)?);
    }
    let batch = asked.iter().zip(&policies).map(|((_, (call, number, budget)), policy)| {
        values![
            call.0,
            i64::from(*number),
            budget.remaining.map(i64::from),
            micros(budget.backoff),
            budget.policy.as_ref().map(|policy| micros(policy.max)),
            policy.as_deref(),
            budget.first_at.as_micros(),
        ]
    });
    let mut done = HashSet::new();
    for row in conn.batch(&sql::BUDGET, batch.collect()).await? {
        done.insert((row.call_id(0)?, row.count(1)?));
    }
    Ok(asked.into_iter().filter(|(_, (call, number, _))| !done.contains(&(*call, *number))).map(|(place, _)| place).collect())
}

/// The policy as it is kept.
pub(super) fn policy_text(budget: &Budget) -> Result<Option<String>> {
    json(budget.policy.as_ref())
}

fn json(value: Option<&impl serde::Serialize>) -> Result<Option<String>> {
    let text = value.map(serde_json::to_string).transpose();
    text.map_err(|error| StoreError::Database(sqlx::Error::Encode(error.into())))
}

/// The attempts that begin, and whether live ones are held.
async fn open(conn: &mut Conn<'_>, changes: &[&Changes], payloads: &[Option<Cow<'_, [u8]>>]) -> Result<()> {
    let opened: Vec<_> =
        changes.iter().zip(payloads).filter_map(|(change, payload)| Some((&change.open.as_ref()?.attempt, payload))).collect();
    let mut texts = Vec::with_capacity(opened.len());
    for (attempt, _) in &opened {
        texts.push((policy_text(&attempt.budget)?, attempt.error.as_deref().map(fit_text)));
    }
    let batch = opened.iter().zip(&texts).map(|((attempt, payload), (policy, error))| {
        values![
            attempt.call.0,
            i64::from(attempt.number),
            attempt.instance.0,
            attempt.machine.as_str(),
            attempt.verb.as_str(),
            attempt.event.as_str(),
            payload.as_deref(),
            attempt.from.as_deref(),
            attempt.to.as_str(),
            attempt.state.as_str(),
            attempt.held,
            attempt.created_at.as_micros(),
            attempt.scheduled_at.as_micros(),
            attempt.budget.remaining.map(i64::from),
            micros(attempt.budget.backoff),
            attempt.budget.policy.as_ref().map(|policy| micros(policy.max)),
            policy.as_deref(),
            attempt.budget.first_at.as_micros(),
            attempt.worker.map(|session| session.0),
            attempt.started_at.map(Timestamp::as_micros),
            attempt.finished_at.map(Timestamp::as_micros),
            error.as_deref(),
            attempt.previous.map(|call| call.0),
        ]
    });
    conn.batch(&sql::OPEN, batch.collect()).await?;

    let holds = changes.iter().filter_map(|change| {
        let (call, number) = change.hold?;
        Some(values![call.0, i64::from(number), change.instance.paused])
    });
    conn.batch(&sql::HOLD, holds.collect()).await.map(drop)
}

/// Timers that fired or were left go before new ones come.
async fn timers(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<()> {
    if changes.iter().all(|change| change.timers.is_empty()) {
        return Ok(());
    }
    let all = || changes.iter().flat_map(|change| change.timers.iter().map(|timer| (&change.instance, timer)));
    let fired = all().filter_map(|(_, change)| if let TimerChange::Fired(timer) = change { Some(values![timer.0]) } else { None });
    conn.batch(&sql::TIMER_DELETE, fired.collect()).await?;
    let cleared = all().filter(|(_, change)| matches!(change, TimerChange::Clear)).map(|(instance, _)| values![instance.id.0]);
    conn.batch(&sql::TIMER_CLEAR, cleared.collect()).await?;
    let held = all().filter_map(|(_, change)| if let TimerChange::Hold(timer) = change { Some(values![timer.0]) } else { None });
    conn.batch(&sql::TIMER_HOLD, held.collect()).await?;
    let released = all().filter(|(_, change)| matches!(change, TimerChange::Release)).map(|(instance, _)| values![instance.id.0]);
    conn.batch(&sql::TIMER_RELEASE, released.collect()).await?;
    let set = all().filter_map(|(instance, change)| match change {
        TimerChange::Set(timer) => Some(values![
            timer.id.0,
            timer.instance.0,
            instance.machine.as_str(),
            timer.state.as_deref(),
            timer.event.name.as_str(),
            timer.event.payload.as_slice(),
            timer.due_at.as_micros(),
        ]),
        _ => None,
    });
    conn.batch(&sql::TIMER_SET, set.collect()).await.map(drop)
}

/// Notes, and requests to be known again.
async fn remember(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<()> {
    let notes: Vec<_> = changes.iter().flat_map(|change| &change.notes).map(|note| (note, note.detail.as_deref().map(fit))).collect();
    let batch = notes.iter().map(|(note, detail)| {
        values![
            note.instance.0,
            note.at.as_micros(),
            note.kind.as_str(),
            note.call.map(|call| call.0),
            detail.as_deref(),
            note.actor.as_deref()
        ]
    });
    conn.batch(&sql::NOTE, batch.collect()).await?;

    let requests = changes.iter().filter_map(|change| Some((&change.instance, change.request.as_ref()?)));
    let batch = requests.map(|(instance, request)| {
        values![
            instance.id.0,
            request.dedup.as_str(),
            request.event.as_deref(),
            request.digest.as_slice(),
            request.call.0,
            request.at.as_micros()
        ]
    });
    conn.batch(&sql::REQUEST, batch.collect()).await.map(drop)
}
