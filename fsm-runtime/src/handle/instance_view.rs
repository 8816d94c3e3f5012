//! Instances of any machine as they are read: the rows with their open calls. Handles convert them to the machine's types.

use std::collections::HashMap;

use fsm_core::call::Attempt as Row;
use fsm_core::instance::Instance as InstanceRow;

use super::activity::{Activity, OpenCall};
use crate::data_protection::{DataProtection, Owner};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::conn::Conn;
use crate::store::overview::{InboxEvent, PendingTimer};
use crate::store::{lock, overview, view as rows};

/// An instance as it was when it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceView {
    /// The instance's row.
    pub row: InstanceRow,
    /// The open call.
    pub call: Option<OpenCall>,
    /// The first 100 timers, the first due first.
    pub timers: Vec<PendingTimer>,
    /// The first 100 events of the inbox, in order.
    pub waiting: Vec<InboxEvent>,
}

impl InstanceView {
    /// Combines the row, its live attempt and the previous one, without timers and waiting events. Errors are decrypted; the record stays encrypted.
    pub(crate) fn new(row: InstanceRow, live: Option<&Row>, before: Option<&Row>, data_protection: &DataProtection) -> InstanceView {
        let mut call = live.map(|live| OpenCall::seen(live, before));
        if let Some(error) = call.as_mut().and_then(|call| call.last_error.as_mut()) {
            *error = data_protection.open_error(Owner::of(&row), error).into_owned();
        }
        InstanceView { row: data_protection.readable(row), call, timers: Vec::new(), waiting: Vec::new() }
    }

    /// The present activity of the instance.
    pub fn activity(&self) -> Activity {
        Activity::of(self.row.status, self.call.as_ref(), self.row.paused, self.row.error.as_deref())
    }
}

/// Every attempt of an instance, oldest first.
pub(crate) async fn calls_of(conn: &mut Conn<'_>, row: &InstanceRow, data_protection: &DataProtection) -> Result<Vec<Row>, Error> {
    let Some((newest, _)) = row.newest else { return Ok(Vec::new()) };
    let mut attempts = rows::calls(conn, newest).await?;
    data_protection.readable_attempts(Owner::of(row), &mut attempts);
    Ok(attempts)
}

/// Completes a row that a commit of this process left: with its open call, unless `live` is its first attempt, and with its timers and waiting
/// events. Reads nothing if the row itself shows that there are none.
pub(crate) async fn completed(engine: &Engine, row: InstanceRow, live: Option<&Row>) -> Result<InstanceView, Error> {
    let data_protection = &engine.data_protection;
    let is_first = live.is_some_and(|live| live.number == 1);
    if is_known(engine, &row) && (!row.is_open || is_first) {
        return Ok(InstanceView::new(row, live, None, data_protection));
    }
    let mut reader = engine.store.reader().await?;
    Ok(with_calls(&mut reader.conn(), vec![row], data_protection).await?.remove(0))
}

/// Returns true if the row itself shows that the state has no timer and that no event waits.
pub(crate) fn is_known(engine: &Engine, row: &InstanceRow) -> bool {
    let has_timer = || {
        let machine = engine.catalog.get(&row.machine).map(|known| &known.machine);
        row.state.as_deref().is_some_and(|state| machine.is_none_or(|machine| machine.timer(state).is_some()))
    };
    row.status.is_ended() || (row.inbox_len() == 0 && !has_timer())
}

/// Combines the rows with their open calls, the errors of the previous attempts, their timers and their waiting events.
pub(crate) async fn with_calls(
    conn: &mut Conn<'_>,
    found: Vec<InstanceRow>,
    data_protection: &DataProtection,
) -> Result<Vec<InstanceView>, Error> {
    let live = found.iter().filter(|row| row.is_open).filter_map(|row| row.newest);
    let wanted: Vec<_> = live.flat_map(|(call, number)| [(call, number), (call, number - 1)]).filter(|(_, number)| *number > 0).collect();
    let attempts = if wanted.is_empty() { Vec::new() } else { lock::attempts(conn, &wanted).await? };
    let alive: Vec<_> = found.iter().filter(|row| !row.status.is_ended()).map(|row| row.id).collect();
    let busy: Vec<_> = found.iter().filter(|row| row.inbox_len() > 0).collect();
    let mut timers = if alive.is_empty() { HashMap::new() } else { overview::timers_of(conn, &alive).await? };
    let mut inboxes = if busy.is_empty() { HashMap::new() } else { overview::inboxes_of(conn, &busy).await? };
    let seen = found.into_iter().map(|row| {
        let newest = row.newest.filter(|_| row.is_open);
        let numbered =
            |number| attempts.iter().find(|attempt| newest.is_some_and(|(call, _)| attempt.call == call) && attempt.number == number);
        let live = newest.and_then(|(_, number)| numbered(number));
        let before = newest.and_then(|(_, number)| numbered(number - 1));
        let mut timers = timers.remove(&row.id).unwrap_or_default();
        // The instance may have moved on since its row was read.
        timers.retain(|timer| timer.state.is_none() || timer.state == row.state);
        let waiting = inboxes.remove(&row.id).unwrap_or_default();
        InstanceView { timers, waiting, ..InstanceView::new(row, live, before, data_protection) }
    });
    Ok(seen.collect())
}
