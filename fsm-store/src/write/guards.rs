//! The guards of a batch: the conditions under which each change is written.

use std::borrow::Cow;
use std::collections::HashSet;

use fsm_core::changes::{Changes, Close};
use fsm_core::commit::written::payload;
use fsm_core::family::Link;
use fsm_core::ids::InstanceId;
use fsm_core::time::micros;
use uuid::Uuid;

use super::follow::{OPEN, joined, moved_columns, open_columns};
use super::json::{json, policy_text};
use crate::conn::Conn;
use crate::encrypted::fit_text;
use crate::error::Result;
use crate::parent_elsewhere::ParentElsewhere;
use crate::sql;
use crate::values::{Batch, Value, values};

/// The places of the changes whose guard fails. For each change only its last guard writes, so that a change whose guard fails writes
/// nothing.
pub(super) async fn guards(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<HashSet<usize>> {
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
    let errors: Vec<_> = closes.iter().map(|(_, close)| error_of(close)).collect();
    let rows = closes.iter().zip(&errors).map(|((place, close), error)| close_row(changes[*place].instance.id, close, error.as_deref()));
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
    let created = new.iter().map(|(_, change)| Created::of(change)).collect::<Result<Vec<_>>>()?;
    outdated.extend(create(conn, &new, created.iter().map(Created::row).collect()).await?);
    Ok(outdated)
}

/// The error of an attempt, cut to the size of its column.
pub(super) fn error_of(close: &Close) -> Option<Cow<'_, str>> {
    close.error.as_deref().map(fit_text)
}

/// A row for `sql::CLOSE`.
pub(super) fn close_row<'a>(instance: InstanceId, close: &'a Close, error: Option<&'a str>) -> [Value<'a>; 8] {
    values![
        instance.0,
        close.call.0,
        i64::from(close.number),
        close.expected.as_str(),
        close.held_by.map(|session| session.0),
        close.becomes.as_str(),
        close.finished_at.as_micros(),
        error,
    ]
}

/// The number of columns of a new instance with its open attempt.
pub(super) const CREATED: usize = 16 + OPEN + LINK;
/// The number of columns that only a child has.
const LINK: usize = 6;

/// New instances, with the texts of their rows.
pub(super) struct Created<'a> {
    change: &'a Changes,
    error: Option<Cow<'a, str>>,
    policy: Option<String>,
    payload: Option<Cow<'a, [u8]>>,
    parent_elsewhere: Option<String>,
}

impl<'a> Created<'a> {
    pub(super) fn of(change: &'a Changes) -> Result<Created<'a>> {
        let policy = change.open.as_ref().map(|open| policy_text(&open.attempt.retry_state)).transpose()?.flatten();
        let parent_elsewhere = ParentElsewhere::of(change).map(|elsewhere| json(Some(&elsewhere))).transpose()?.flatten();
        let error = change.instance.error.as_deref().map(fit_text);
        Ok(Created { change, error, policy, payload: payload(change), parent_elsewhere })
    }

    /// A row for `sql::CREATE`.
    pub(super) fn row(&self) -> [Value<'_>; CREATED] {
        let Created { change: Changes { instance, open, link, .. }, error, policy, payload, parent_elsewhere } = self;
        let open = open.as_ref().map(|open| &*open.attempt);
        let [id, state, version, record, error, head, tail, updated_at, entered_at, fair_by] = moved_columns(instance, error.as_deref());
        let [machine, key, status, paused, created_at, is_open] = values![
            instance.machine.as_str(),
            instance.key.as_str(),
            instance.status.as_str(),
            instance.paused,
            instance.created_at.as_micros(),
            open.is_some(),
        ];
        let own = [
            id, machine, key, status, state, paused, version, record, error, head, tail, created_at, updated_at, entered_at, fair_by,
            is_open,
        ];
        let own = joined::<16, OPEN, { 16 + OPEN }>(own, open_columns(open, payload.as_deref(), policy.as_deref()));
        joined::<{ 16 + OPEN }, LINK, CREATED>(own, link_columns(link.as_deref(), parent_elsewhere.as_deref()))
    }
}

/// The columns of a child's connection to its parent.
fn link_columns<'a>(link: Option<&'a Link>, elsewhere: Option<&'a str>) -> [Value<'a>; LINK] {
    values![
        link.map(|link| link.parent.id.0),
        link.map(|link| link.parent.group),
        elsewhere,
        link.map(|link| if link.is_detached { "detached" } else { "attached" }),
        link.and_then(|link| link.end_event.as_deref()),
        link.and_then(|link| link.failure_event.as_deref()),
    ]
}

/// Ends attempts. Returns the places of those that were not in the expected state.
async fn close(conn: &mut Conn<'_>, closes: &[(usize, &Close)], rows: Vec<[Value<'_>; 8]>) -> Result<Vec<usize>> {
    let keys: Vec<_> = closes.iter().map(|(_, close)| (close.call, close.number)).collect();
    let missed = conn.missed(&sql::CLOSE, rows.into(), &keys, |row| Ok((row.call_id(0)?, row.count(1)?))).await?;
    Ok(missed.into_iter().map(|missed| closes[missed].0).collect())
}

/// Creates instances. Returns the places of those whose key another instance has.
async fn create(conn: &mut Conn<'_>, new: &[(usize, &&Changes)], rows: Vec<[Value<'_>; CREATED]>) -> Result<Vec<usize>> {
    let keys: Vec<_> = new.iter().map(|(_, change)| change.instance.id).collect();
    let missed = conn.missed(&sql::CREATE, rows.into(), &keys, |row| row.instance_id(0)).await?;
    Ok(missed.into_iter().map(|missed| new[missed].0).collect())
}

/// Writes new retry states of scheduled attempts. Returns the places of those that are no longer scheduled.
async fn rescheduled(conn: &mut Conn<'_>, changes: &[&Changes], outdated: &HashSet<usize>) -> Result<Vec<usize>> {
    let valid = changes.iter().enumerate().filter(|(place, _)| !outdated.contains(place));
    let asked: Vec<_> = valid.filter_map(|(place, change)| Some((place, change.retry_state.as_deref()?))).collect();
    let mut policies = Vec::with_capacity(asked.len());
    for (_, (_, _, retry_state)) in &asked {
        policies.push(policy_text(retry_state)?);
    }
    let batch = asked.iter().zip(&policies).map(|((place, (call, number, retry_state)), policy)| {
        values![
            changes[*place].instance.id.0,
            call.0,
            i64::from(*number),
            retry_state.remaining.map(i64::from),
            micros(retry_state.backoff),
            retry_state.policy.as_ref().map(|policy| micros(policy.max)),
            policy.as_deref(),
            retry_state.first_at.as_micros(),
        ]
    });
    let mut done = HashSet::new();
    for row in conn.batch(&sql::RETRY_STATE, batch.collect()).await? {
        done.insert((row.call_id(0)?, row.count(1)?));
    }
    Ok(asked.into_iter().filter(|(_, (call, number, _))| !done.contains(&(*call, *number))).map(|(place, _)| place).collect())
}

/// Passes the rows of new instances to `put`, in the order of their keys, so that two batches cannot deadlock.
pub(super) fn created<T>(changes: &[&Changes], put: impl FnOnce(Batch<'_, CREATED>) -> T) -> Result<T> {
    let mut new: Vec<_> = changes.iter().filter(|change| change.is_new).collect();
    new.sort_by_key(|change| (&change.instance.machine, &change.instance.key));
    let rows = new.into_iter().map(|change| Created::of(change)).collect::<Result<Vec<_>>>()?;
    Ok(put(rows.iter().map(Created::row).collect()))
}
