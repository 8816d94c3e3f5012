//! The write path in one statement, for changes that were decided without locks. A guard rejects those whose instance has changed since.

use std::borrow::Cow;
use std::collections::HashSet;

use fsm_core::changes::{Changes, Payload, TimerChange};
use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;

use super::follow::{log, remember, save, search, timers, traces, waits};
use super::guards::{CREATED, Created, close_row, error_of};
use crate::store::combined::{CombinedStatement, Sink};
use crate::store::conn::Conn;
use crate::store::error::{Result, StoreError};
use crate::store::file_version::{FileVersion, FileVersions};
use crate::store::open::Store;
use crate::store::sql;
use crate::store::thread::Whole;
use crate::store::values::{Batch, Value, values};

/// The version that a guard compares: if it is unchanged, the instance is still as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVersion {
    /// In PostgreSQL, the row version that the instance was read with.
    Row,
    /// In SQLite, the file version in which the instance was read.
    FileVersion(FileVersion),
}

/// True if one statement can write these changes, because it needs no value that has to be read from the database first.
pub fn fits(changes: &Changes) -> bool {
    let Changes {
        instance: _,
        was: _,
        is_new: _,
        close: _,
        open,
        hold,
        retry_state,
        waits: _,
        inbox_taken,
        is_forecast_stale,
        timers,
        notes: _,
        request: _,
        link: _,
        search: _,
        traces: _,
    } = changes;
    let has_payload = open.as_ref().and_then(|open| open.payload.as_ref()).is_none_or(|payload| matches!(payload, Payload::Bytes(_)));
    let are_own = timers.iter().all(|change| matches!(change, TimerChange::Set(_) | TimerChange::Clear | TimerChange::Release));
    has_payload && are_own && hold.is_none() && retry_state.is_none() && inbox_taken.is_none() && !is_forecast_stale
}

/// Writes and commits each of the changes whose guard holds. The guard: the instance has the row version that the change was decided on and
/// was last changed at the given time, or it is new and its key is free; and the session holds the attempt that ends. Returns the instances
/// that are written. Returns `None` if a unique index other than that of the keys rejects the statement: nothing is written then. The
/// instances are distinct, and all changes [`fits`]. After an error the outcome is not known. Only for PostgreSQL, outside a transaction,
/// on a connection for commits.
pub async fn write_single_statement(conn: &mut Conn<'_>, changes: &[(&Changes, Timestamp)]) -> Result<Option<HashSet<InstanceId>>> {
    let mut all = CombinedStatement::new();
    let seen: Batch<'_, 6> = changes.iter().filter(|(change, _)| !change.is_new).map(|(change, at)| at_version(change, *at)).collect();
    let changes: &[&Changes] = &changes.iter().map(|(change, _)| *change).collect::<Vec<_>>();
    let mut good = Vec::new();
    for (name, is_there) in [("seen", !seen.is_empty()), ("created", changes.iter().any(|change| change.is_new))] {
        good.extend(is_there.then(|| format!("select {name}.instance_id from {name}")));
    }
    all.part("seen", &sql::AT_VERSION, seen)?;
    created(changes, |rows| all.part("created", &sql::CREATE, rows))??;
    all.words("good", &good.join(" union all "));
    all.only_if(sql::IS_GOOD.to_owned());
    closed(changes, |rows| all.part("closed", &sql::CLOSE, rows))?;
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::CombinedStatement(&mut all);
    save(sink, changes, &payloads).await?;
    log(sink, changes).await?;
    waits(sink, changes).await?;
    timers(sink, changes).await?;
    remember(sink, changes).await?;
    search(sink, changes).await?;
    traces(sink, changes).await?;
    match all.commit(conn, sql::WROTE_SINGLE_STATEMENT).await {
        Ok(rows) => rows.iter().map(|row| row.instance_id(0)).collect::<Result<_>>().map(Some),
        Err(StoreError::Database(error)) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the changes by one statement in a transaction of the caller. If the future is dropped, the transaction contains all of them or
/// none. Returns `false` and writes nothing if another instance has the key of a new one. An instance that is not new must be locked by
/// this transaction, and the changes must [`fit`](fits). Only for PostgreSQL.
pub async fn write_in_one(conn: &mut Conn<'_>, changes: &Changes) -> Result<bool> {
    let (mut all, changes) = (CombinedStatement::new(), [changes]);
    created(&changes, |rows| all.part("created", &sql::CREATE, rows))??;
    let good = if changes[0].is_new { "(select count(*) from created) = 1" } else { "true" };
    all.words("outcome (good)", &format!("select {good}"));
    all.only_if("(select good from outcome)".to_owned());
    let payloads = [payload(changes[0])];
    let sink = &mut Sink::CombinedStatement(&mut all);
    save(sink, &changes, &payloads).await?;
    waits(sink, &changes).await?;
    timers(sink, &changes).await?;
    remember(sink, &changes).await?;
    search(sink, &changes).await?;
    traces(sink, &changes).await?;
    let rows = all.commit(conn, sql::WROTE_IN_ONE).await?;
    rows.first().ok_or_else(|| StoreError::Corrupt { what: "a statement with one answer gave none".to_owned() })?.get(0)
}

/// A row for `sql::AT_VERSION`.
fn at_version(change: &Changes, changed_at: Timestamp) -> [Value<'_>; 6] {
    let Changes { instance, close, .. } = change;
    values![
        instance.id.0,
        instance.row_version,
        changed_at.as_micros(),
        close.as_ref().map(|close| close.call.0),
        close.as_ref().map(|close| i64::from(close.number)),
        close.as_ref().and_then(|close| close.held_by).map(|session| session.0),
    ]
}

/// Like [`write_single_statement`], for SQLite. Writes if the file version is unchanged, so that only this committer wrote since, and if
/// `still` returns true when the transaction has begun. Returns whether it wrote; if not, nothing is written.
pub async fn write_as_script(
    store: &Store,
    file_versions: &FileVersions,
    file_version: FileVersion,
    changes: &[&Changes],
    still: impl FnOnce() -> bool + Send + 'static,
) -> Result<bool> {
    let mut all = Whole::default();
    closed(changes, |rows| all.guard(&sql::CLOSE, &rows));
    created(changes, |rows| all.guard(&sql::CREATE, &rows))?;
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::Whole(&mut all);
    save(sink, changes, &payloads).await?;
    log(sink, changes).await?;
    waits(sink, changes).await?;
    timers(sink, changes).await?;
    remember(sink, changes).await?;
    search(sink, changes).await?;
    traces(sink, changes).await?;
    store.carry_out(file_versions, file_version, all, still).await
}

/// Passes the rows of the attempts that end to `put`.
fn closed<T>(changes: &[&Changes], put: impl FnOnce(Batch<'_, 8>) -> T) -> T {
    let closes: Vec<_> = changes.iter().filter_map(|change| Some((change.instance.id, change.close.as_ref()?))).collect();
    let errors: Vec<_> = closes.iter().map(|(_, close)| error_of(close)).collect();
    put(closes.iter().zip(&errors).map(|((instance, close), error)| close_row(*instance, close, error.as_deref())).collect())
}

/// Passes the rows of new instances to `put`, in the order of their keys, so that two batches cannot deadlock.
fn created<T>(changes: &[&Changes], put: impl FnOnce(Batch<'_, CREATED>) -> T) -> Result<T> {
    let mut new: Vec<_> = changes.iter().filter(|change| change.is_new).collect();
    new.sort_by_key(|change| (&change.instance.machine, &change.instance.key));
    let rows = new.into_iter().map(|change| Created::of(change)).collect::<Result<Vec<_>>>()?;
    Ok(put(rows.iter().map(Created::row).collect()))
}

/// The payload of the call that begins, if it came with the request.
pub fn payload(changes: &Changes) -> Option<Cow<'_, [u8]>> {
    match changes.open.as_ref()?.payload.as_ref()? {
        Payload::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
        Payload::Inbox(_) | Payload::Caught { .. } | Payload::Again(_) => None,
    }
}
