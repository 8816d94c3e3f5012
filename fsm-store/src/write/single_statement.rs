//! The write path in one statement, for changes that were decided without locks. A guard rejects those whose instance has changed since.

use std::collections::HashSet;

use fsm_core::changes::{Changes, Close};
use fsm_core::commit::written::payload;
use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;

use super::follow::{all_but_inbox, joined, waits};
use super::guards::{close_row, created, error_of};
use crate::conn::Conn;
use crate::error::{Result, StoreError};
use crate::postgres::combined::CombinedStatement;
use crate::sink::Sink;
use crate::sql;
use crate::values::{Batch, Value, values};

/// Writes and commits each of the changes whose guard holds. The guard: the instance has the row version that the change was decided on and
/// was last changed at the given time, or it is new and its key is free; and the session holds the attempt that ends. Returns the instances
/// that are written. Returns `None` if a unique index other than that of the keys rejects the statement: nothing is written then. The
/// instances are distinct, and all changes [`fits`](fsm_core::commit::written::fits). After an error the outcome is not known. Only for PostgreSQL, outside a transaction,
/// on a connection for commits.
pub async fn write_single_statement(conn: &mut Conn<'_>, changes: &[(&Changes, Timestamp)]) -> Result<Option<HashSet<InstanceId>>> {
    let old = || changes.iter().filter(|(change, _)| !change.is_new);
    let seen: Batch<'_, 3> = old().filter(|(change, _)| change.close.is_none()).map(|(change, at)| at_version(change, *at)).collect();
    let closes: Vec<_> = old().filter_map(|(change, at)| Some((change, at, change.close.as_ref()?))).collect();
    let errors: Vec<_> = closes.iter().map(|(.., close)| error_of(close)).collect();
    let rows = closes.iter().zip(&errors).map(|((change, at, close), error)| ending(change, **at, close, error.as_deref()));
    let ending: Batch<'_, 10> = rows.collect();
    let changes: &[&Changes] = &changes.iter().map(|(change, _)| *change).collect::<Vec<_>>();

    let guards = [("seen", !seen.is_empty()), ("ending", !ending.is_empty()), ("created", changes.iter().any(|change| change.is_new))];
    let good = guards.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| format!("select {name}.instance_id from {name}"));
    let mut all = CombinedStatement::new();
    all.part("seen", &sql::AT_VERSION, seen)?;
    all.part("ending", &sql::ENDING, ending)?;
    created(changes, |rows| all.part("created", &sql::CREATE, rows))??;
    all.words("good", &good.collect::<Vec<_>>().join(" union all "));
    all.only_if(sql::IS_GOOD.to_owned());
    if !closes.is_empty() {
        all.words("ended", sql::APPEND_ENDED);
    }
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::CombinedStatement(&mut all);
    waits(sink, changes).await?;
    all_but_inbox(sink, changes, &payloads).await?;
    match all.commit(conn, sql::WROTE_SINGLE_STATEMENT).await {
        Ok(rows) => rows.iter().map(|row| row.instance_id(0)).collect::<Result<_>>().map(Some),
        Err(StoreError::Database(error)) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the changes by one statement in a transaction of the caller. If the future is dropped, the transaction contains all of them or
/// none. Returns `false` and writes nothing if another instance has the key of a new one. An instance that is not new must be locked by
/// this transaction, and the changes must [`fit`](fsm_core::commit::written::fits). Only for PostgreSQL.
pub async fn write_in_one(conn: &mut Conn<'_>, changes: &Changes) -> Result<bool> {
    let (mut all, changes) = (CombinedStatement::new(), [changes]);
    created(&changes, |rows| all.part("created", &sql::CREATE, rows))??;
    let good = if changes[0].is_new { "(select count(*) from created) = 1" } else { "true" };
    all.words("outcome (good)", &format!("select {good}"));
    all.only_if("(select good from outcome)".to_owned());
    let payloads = [payload(changes[0])];
    let sink = &mut Sink::CombinedStatement(&mut all);
    waits(sink, &changes).await?;
    all_but_inbox(sink, &changes, &payloads).await?;
    let rows = all.commit(conn, sql::WROTE_IN_ONE).await?;
    rows.first().ok_or_else(|| StoreError::Corrupt { what: "a statement with one answer gave none".to_owned() })?.get(0)
}

/// A row for `sql::AT_VERSION`.
fn at_version<'a>(change: &Changes, changed_at: Timestamp) -> [Value<'a>; 3] {
    let instance = &change.instance;
    values![instance.id.0, instance.row_version, changed_at.as_micros()]
}

/// A row for `sql::ENDING`.
fn ending<'a>(change: &Changes, changed_at: Timestamp, close: &'a Close, error: Option<&'a str>) -> [Value<'a>; 10] {
    let [_, closed @ ..] = close_row(change.instance.id, close, error);
    joined::<3, 7, 10>(at_version(change, changed_at), closed)
}
