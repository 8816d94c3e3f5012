//! The door in one statement: for changes that were decided without a lock, and count only if nothing moved meanwhile.

use std::borrow::Cow;

use fsm_core::changes::{Changes, Payload, TimerChange};
use fsm_core::time::Timestamp;

use super::follow::{open, remember, save, timers, waits};
use super::guards::{close_row, error_of, instance_row};
use crate::store::combined::{CombinedStatement, Sink};
use crate::store::conn::Conn;
use crate::store::encrypted::fit_text;
use crate::store::error::{Result, StoreError};
use crate::store::file_version::{FileVersion, FileVersions};
use crate::store::open::Store;
use crate::store::sql;
use crate::store::thread::Whole;
use crate::store::values::{Batch, values};

/// What shows, when a decision is written, that its instance is still as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVersion {
    /// In PostgreSQL, the commit that wrote its row last.
    Row {
        /// The commit's number, which is kept with each row.
        xmin: i64,
        /// The row's own moment: a server that lost commits in a crash gives their numbers again.
        updated_at: Timestamp,
    },
    /// In SQLite, the epoch in which it was seen.
    FileVersion(FileVersion),
}

impl RowVersion {
    /// The number of the commit, and the row's moment.
    fn row(self) -> Result<(i64, Timestamp)> {
        match self {
            RowVersion::Row { xmin, updated_at } => Ok((xmin, updated_at)),
            RowVersion::FileVersion(_) => Err(StoreError::Corrupt { what: "an epoch of SQLite stands for a row of PostgreSQL".to_owned() }),
        }
    }
}

/// Whether one statement can write these: nothing that is already in the database has to be read for them.
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
    } = changes;
    let has_payload = open.as_ref().and_then(|open| open.payload.as_ref()).is_none_or(|payload| matches!(payload, Payload::Bytes(_)));
    let are_own = timers.iter().all(|change| matches!(change, TimerChange::Set(_) | TimerChange::Clear | TimerChange::Release));
    has_payload && are_own && hold.is_none() && retry_state.is_none() && inbox_taken.is_none() && !is_forecast_stale
}

/// Writes and commits all of the changes, or nothing at all: `None` when one of the instances is not as its stamp says, or new and there
/// already, or one of the attempts not as expected. The instances are distinct, have a stamp unless they are new, and all changes
/// [`fits`]. After an error the outcome is not known. Only for PostgreSQL, outside a transaction, on a connection for commits.
pub async fn write_single_statement(conn: &mut Conn<'_>, changes: &[(&Changes, Option<RowVersion>)]) -> Result<Option<i64>> {
    let mut all = CombinedStatement::new();
    guard(&mut all, changes)?;
    let changes: Vec<&Changes> = changes.iter().map(|(changes, _)| *changes).collect();
    created(&changes, |rows| all.part("created", &sql::CREATE_ALL, rows))?;
    let closes = changes.iter().filter(|change| change.close.is_some()).count();
    closed(&changes, |rows| all.part("closed", &sql::CLOSE, rows))?;
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::CombinedStatement(&mut all);
    save(sink, &changes).await?;
    waits(sink, &changes).await?;
    timers(sink, &changes).await?;
    remember(sink, &changes).await?;
    if closes > 0 {
        // An instance has one live attempt: the new one comes once the old one has ended, and parts have no order of their own.
        let how_many = all.number(closes)?;
        all.only_if(format!("(select count(*) from closed) = {how_many}"));
    }
    open(&mut Sink::CombinedStatement(&mut all), &changes, &payloads).await?;
    match all.commit(conn, sql::WROTE_SINGLE_STATEMENT).await {
        Ok(rows) => {
            let row = rows.first().ok_or_else(|| StoreError::Corrupt { what: "a statement with one answer gave none".to_owned() })?;
            Ok(if row.get(0)? { Some(row.get(1)?) } else { None })
        }
        Err(StoreError::Database(error)) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the changes by one statement in a transaction of the caller's. Whenever its future is dropped, the transaction has all of them or
/// none. `false`, and nothing is written, when another has the key of a new instance. An instance that is not new is locked by this
/// transaction, and the changes [`fit`](fits). Only for PostgreSQL.
pub async fn write_in_one(conn: &mut Conn<'_>, changes: &Changes) -> Result<bool> {
    let (mut all, changes) = (CombinedStatement::new(), [changes]);
    created(&changes, |rows| all.part("created", &sql::CREATE, rows))?;
    let good = if changes[0].is_new { "(select count(*) from created) = 1" } else { "true" };
    all.words("verdict (good)", &format!("select {good}"));
    all.only_if("(select good from verdict)".to_owned());
    let payloads = [payload(changes[0])];
    let sink = &mut Sink::CombinedStatement(&mut all);
    save(sink, &changes).await?;
    waits(sink, &changes).await?;
    timers(sink, &changes).await?;
    remember(sink, &changes).await?;
    open(sink, &changes, &payloads).await?;
    let rows = all.commit(conn, sql::WROTE_IN_ONE).await?;
    rows.first().ok_or_else(|| StoreError::Corrupt { what: "a statement with one answer gave none".to_owned() })?.get(0)
}

/// The instances and attempts are locked as they have to be, or nothing else is about any row.
fn guard(all: &mut CombinedStatement, changes: &[(&Changes, Option<RowVersion>)]) -> Result<()> {
    let mut seen = Vec::with_capacity(changes.len());
    for (change, row_version) in changes {
        if let Some(row_version) = row_version {
            let (xmin, updated_at) = row_version.row()?;
            seen.push(values![change.instance.id.0, xmin, updated_at.as_micros()]);
        }
    }
    let held = changes.iter().filter_map(|(change, _)| {
        let close = change.close.as_ref()?;
        Some(values![close.call.0, i64::from(close.number), close.expected.as_str(), close.held_by.map(|session| session.0)])
    });
    let held: Vec<_> = held.collect();
    let mut good = vec!["true".to_owned()];
    for (name, how_many) in [("seen", seen.len()), ("held", held.len())] {
        if how_many > 0 {
            let how_many = all.number(how_many)?;
            good.push(format!("(select count(*) from {name}) = {how_many}"));
        }
    }
    all.part("seen", &sql::AT_VERSION, seen.into())?;
    all.part("held", &sql::AS_HELD, held.into())?;
    all.words("verdict (good)", &format!("select {}", good.join(" and ")));
    all.only_if("(select good from verdict)".to_owned());
    Ok(())
}

/// The same in SQLite: written if nobody but that committer wrote since the epoch began, and `still` holds when its turn has come.
/// Whether it is; if not, nothing is written.
pub async fn write_as_script(
    store: &Store,
    file_versions: &FileVersions,
    file_version: FileVersion,
    changes: &[&Changes],
    still: impl FnOnce() -> bool + Send + 'static,
) -> Result<bool> {
    let mut all = Whole::default();
    closed(changes, |rows| all.guard(&sql::CLOSE, &rows));
    created(changes, |rows| all.guard(&sql::CREATE, &rows));
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::Whole(&mut all);
    save(sink, changes).await?;
    waits(sink, changes).await?;
    open(sink, changes, &payloads).await?;
    timers(sink, changes).await?;
    remember(sink, changes).await?;
    store.carry_out(file_versions, file_version, all, still).await
}

/// The ends of attempts.
fn closed<T>(changes: &[&Changes], put: impl FnOnce(Batch<'_, 7>) -> T) -> T {
    let closes: Vec<_> = changes.iter().filter_map(|change| change.close.as_ref()).collect();
    let errors: Vec<_> = closes.iter().map(|close| error_of(close)).collect();
    put(closes.iter().zip(&errors).map(|(close, error)| close_row(close, error.as_deref())).collect())
}

/// New instances in the order of their keys, so that two batches never wait for each other crosswise.
fn created<T>(changes: &[&Changes], put: impl FnOnce(Batch<'_, 17>) -> T) -> T {
    let mut new: Vec<_> = changes.iter().filter(|change| change.is_new).map(|change| &change.instance).collect();
    new.sort_by_key(|instance| (&instance.machine, &instance.key));
    let errors: Vec<_> = new.iter().map(|instance| instance.error.as_deref().map(fit_text)).collect();
    put(new.iter().zip(&errors).map(|(instance, error)| instance_row(instance, error.as_deref())).collect())
}

/// What the call that begins carries, where that came with the request.
pub fn payload(changes: &Changes) -> Option<Cow<'_, [u8]>> {
    match changes.open.as_ref()?.payload.as_ref()? {
        Payload::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
        Payload::Inbox(_) | Payload::Caught { .. } => None,
    }
}
