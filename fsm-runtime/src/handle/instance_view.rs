//! Instances of any machine as they are read: the rows with their open calls. Handles convert them to the machine's types.

use std::collections::HashMap;

use fsm_core::call::Attempt as Row;
use fsm_core::family::Parent;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance as InstanceRow;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::family::{self, ChildCount, Relative};
use fsm_store::overview::{InboxEvent, PendingTimer};
use fsm_store::pages::Unreadable;
use fsm_store::parent_elsewhere::ParentElsewhere;
use fsm_store::remote_children;
use fsm_store::view::WithNewest;
use fsm_store::{lock, overview, view as rows};

use super::activity::{Activity, OpenCall};
use crate::data_protection::{DataProtection, Owner};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::progress::Progress;
use crate::search;

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
    /// The search fields, in the order of their declaration.
    pub fields: Vec<SearchField>,
    /// The trace of the newest call.
    pub trace: Option<TraceContext>,
    /// The instance that started it as a child.
    pub parent: Option<Relative>,
    /// The number of its children by machine, state and status.
    pub children: Vec<ChildCount>,
}

impl InstanceView {
    /// Combines the row, its live attempt and the previous one, without timers and waiting events. Errors are decrypted; the record stays encrypted.
    pub(crate) fn new(row: InstanceRow, live: Option<&Row>, before: Option<&Row>, data_protection: &DataProtection) -> InstanceView {
        let mut call = live.map(|live| OpenCall::of(live, before));
        if let Some(error) = call.as_mut().and_then(|call| call.last_error.as_mut()) {
            *error = data_protection.open_error(Owner::of(&row), error).into_owned();
        }
        let row = data_protection.readable(row);
        let (timers, waiting, fields, children) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        InstanceView { row, call, timers, waiting, fields, trace: None, parent: None, children }
    }

    /// Adds the parent and the numbers of children.
    pub(crate) async fn read_family(&mut self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        self.parent = family::parent_of(conn, &self.row).await?;
        self.children = family::children_of(conn, &self.row).await?;
        Ok(())
    }

    /// The id and the name of a parent in another partition.
    pub(crate) async fn parent_elsewhere(&self, conn: &mut Conn<'_>) -> Result<Option<(InstanceId, ParentElsewhere)>, StoreError> {
        match self.row.parent {
            Some(Parent { id, partition: Some(_), .. }) => {
                Ok(remote_children::parent_elsewhere(conn, self.row.id).await?.map(|elsewhere| (id, elsewhere)))
            }
            _ => Ok(None),
        }
    }

    /// Adds the progress of the open attempt. A value that cannot be read is replaced by the reason.
    fn show_progress(&mut self, progress: Option<(Vec<u8>, Timestamp)>, data_protection: &DataProtection) {
        let (Some(call), Some((bytes, at))) = (&mut self.call, progress) else { return };
        let opened = data_protection.open(&Owner::of(&self.row).progress(call.id), &bytes);
        let json = opened.and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string()));
        let value = json.unwrap_or_else(|why| serde_json::Value::from(format!("(the progress cannot be read: {why})")));
        call.progress = Some(Progress { value, at });
    }

    /// The present activity of the instance.
    pub fn activity(&self) -> Activity {
        Activity::of(self.row.status, self.call.as_ref(), self.row.paused, self.row.error.as_deref())
    }
}

/// Reads the instance with this key once. An error is returned at once.
pub(crate) async fn find(engine: &Engine, machine: &str, key: &str) -> Result<Option<InstanceView>, Error> {
    let mut reader = engine.store.reader().await?;
    let conn = &mut reader.conn();
    let Some(row) = rows::find(conn, machine, key).await? else { return Ok(None) };
    let mut seen = with_calls(conn, vec![row], engine.catalog.search_fields(machine), &engine.data_protection).await?.only()?;
    seen.read_family(conn).await?;
    let elsewhere = seen.parent_elsewhere(conn).await?;
    drop(reader);
    if let Some((id, elsewhere)) = elsewhere {
        seen.parent = Box::pin(engine.parent_elsewhere(id, elsewhere)).await;
    }
    Ok(Some(seen))
}

/// Every attempt of an instance, oldest first.
pub(crate) async fn calls_of(conn: &mut Conn<'_>, found: &WithNewest, data_protection: &DataProtection) -> Result<Vec<Row>, Error> {
    if let Some(why) = &found.unread {
        return Err(StoreError::Corrupt { what: why.clone() }.into());
    }
    let Some(newest) = &found.newest else { return Ok(Vec::new()) };
    let mut attempts = rows::calls(conn, newest).await?;
    data_protection.readable_attempts(Owner::of(&found.instance), &mut attempts);
    Ok(attempts)
}

/// Completes a row that a commit of this process left: with the error of the attempt before its `live` one, and with its timers and
/// waiting events. Reads nothing if the row itself shows that there are none.
pub(crate) async fn completed(engine: &Engine, row: InstanceRow, live: Option<&Row>) -> Result<InstanceView, Error> {
    let data_protection = &engine.data_protection;
    let is_first = live.is_some_and(|live| live.number == 1);
    if is_known(engine, &row) && (!row.is_open || is_first) {
        return Ok(InstanceView::new(row, live, None, data_protection));
    }
    let found = WithNewest { instance: row, newest: live.cloned(), unread: None, progress: None };
    // In a box, because the future is large and most calls do not need it.
    Box::pin(read_completed(engine, found)).await
}

async fn read_completed(engine: &Engine, found: WithNewest) -> Result<InstanceView, Error> {
    let mut reader = engine.store.reader().await?;
    let search = engine.catalog.search_fields(&found.instance.machine);
    with_calls(&mut reader.conn(), vec![found], search, &engine.data_protection).await?.only()
}

/// Returns true if the row itself shows that the state has no timer and that no event waits, and if the machine has no search fields.
pub(crate) fn is_known(engine: &Engine, row: &InstanceRow) -> bool {
    if !engine.catalog.search_fields(&row.machine).is_empty() {
        return false;
    }
    let has_timer = || {
        let machine = engine.catalog.get(&row.machine).map(|known| &known.machine);
        row.state.as_deref().is_some_and(|state| machine.is_none_or(|machine| machine.timer(state).is_some()))
    };
    row.status.is_ended() || (row.inbox_len() == 0 && !has_timer())
}

/// Instances with their open calls.
pub(crate) struct WithCalls {
    /// The instances that could be read.
    pub(crate) instances: Vec<InstanceView>,
    /// The instances whose attempts cannot be decoded.
    pub(crate) unreadable: Vec<(InstanceId, Unreadable)>,
}

impl WithCalls {
    /// The only instance, or an error of the kind [`ErrorKind::Unreadable`].
    pub(crate) fn only(mut self) -> Result<InstanceView, Error> {
        self.instances.pop().ok_or_else(|| {
            let says =
                self.unreadable.iter().map(|(_, one)| format!("the open call of `{}` cannot be read: {}", one.key.escape_debug(), one.why));
            Error::other(ErrorKind::Unreadable, says.collect::<String>())
        })
    }
}

/// Combines rows of one machine with their open calls, the errors of the previous attempts, their timers, waiting events and search fields, of
/// which the machine declares `search`. An attempt that cannot be decoded affects only its own instance.
pub(crate) async fn with_calls(
    conn: &mut Conn<'_>,
    found: Vec<WithNewest>,
    search: &[impl AsRef<str>],
    data_protection: &DataProtection,
) -> Result<WithCalls, Error> {
    let mut with = WithCalls { instances: Vec::with_capacity(found.len()), unreadable: Vec::new() };
    let wanted: Vec<_> = found.iter().filter_map(WithNewest::before_open).collect();
    let all = match attempts_of(conn, &wanted).await {
        Err(StoreError::Corrupt { .. }) => None,
        all => Some(all?),
    };
    let alive: Vec<_> = found.iter().map(|found| &found.instance).filter(|row| !row.status.is_ended()).map(|row| row.id).collect();
    let busy: Vec<_> = found.iter().map(|found| &found.instance).filter(|row| row.inbox_len() > 0).collect();
    let mut timers = if alive.is_empty() { HashMap::new() } else { overview::timers_of(conn, &alive).await? };
    let mut inboxes = if busy.is_empty() { HashMap::new() } else { overview::inboxes_of(conn, &busy).await? };
    let all_ids: Vec<_> = found.iter().map(|found| found.instance.id).collect();
    let mut fields = search::fields_of(conn, search, &all_ids).await?;
    for found in found {
        let id = found.before_open();
        let own = match &all {
            Some(_) => None,
            None => match attempts_of(conn, id.as_slice()).await {
                Err(why @ StoreError::Corrupt { .. }) => {
                    with.unreadable.push((found.instance.id, Unreadable { key: found.instance.key, why: why.to_string() }));
                    continue;
                }
                own => Some(own?),
            },
        };
        let attempts = own.as_ref().or(all.as_ref()).map_or(&[][..], Vec::as_slice);
        let before = id.and_then(|id| attempts.iter().find(|attempt| (attempt.call, attempt.number) == id));
        let WithNewest { instance: row, newest, unread, progress } = found;
        if let Some(why) = unread.filter(|_| row.is_open) {
            with.unreadable.push((row.id, Unreadable { key: row.key, why }));
            continue;
        }
        let open = newest.as_ref().filter(|_| row.is_open);
        let mut timers = timers.remove(&row.id).unwrap_or_default();
        // The instance may have moved on since its row was read.
        timers.retain(|timer| timer.state.is_none() || timer.state == row.state);
        let waiting = inboxes.remove(&row.id).unwrap_or_default();
        let fields = fields.remove(&row.id).unwrap_or_default();
        let mut seen = InstanceView { timers, waiting, fields, ..InstanceView::new(row, open, before, data_protection) };
        seen.show_progress(progress, data_protection);
        with.instances.push(seen);
    }
    Ok(with)
}

async fn attempts_of(conn: &mut Conn<'_>, wanted: &[(CallId, u32)]) -> Result<Vec<Row>, StoreError> {
    if wanted.is_empty() { Ok(Vec::new()) } else { lock::attempts(conn, wanted).await }
}
