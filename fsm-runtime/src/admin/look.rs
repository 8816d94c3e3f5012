//! The reads of an operator: single instances, pages of instances, and overviews of a machine.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::call::Attempt;
use fsm_core::commit::rows::Target;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Status;
use fsm_core::trace::TraceContext;
use fsm_store::acts::{self, OperatorAct};
use fsm_store::family::{self, Relative};
use fsm_store::outbox::{self, FullInbox};
use fsm_store::overview::{self, Coming, Failing, InboxEvent, Overdue, PendingTimer, RejectedCount, RejectedEvent, Retrying, Times};
use fsm_store::pages::{self, After, Found, PageFilter, Unreadable};
use fsm_store::parent_elsewhere::ParentElsewhere;
use fsm_store::traces;
use fsm_store::view as rows;

use super::Admin;
use super::opening::Opening;
use crate::data_protection::Owner;
use crate::encode;
use crate::error::Error;
use crate::family_notices::unread;
use crate::handle::history::{self, HistoryEntry};
use crate::handle::instance_view::{InstanceView, calls_of, with_calls};
use crate::handle::watch::InstanceWatch;
use crate::redact::Redactable;
use crate::search;

/// The events of the outbox that wait for one instance are counted no further.
const MOST_COUNTED: u32 = 10_000;

/// The maximum time to read the parent of an instance in another partition.
const ANOTHER_PARTITION: Duration = Duration::from_secs(5);

/// The maximum number of children in the details of an instance.
const CHILDREN: u32 = 100;

/// All that is known of one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceDetails {
    /// The instance as it is now.
    pub seen: InstanceView,
    /// The oldest children, at most 100.
    pub children: Vec<Relative>,
    /// The waiting events, in order.
    pub inbox: Vec<InboxEvent>,
    /// The events that wait in the outbox for room in its inbox, if there are any.
    pub full_inbox: Option<FullInbox>,
    /// The trace of the newest call: that of its sender, or of its newest attempt that has ended.
    pub trace: Option<TraceContext>,
    /// The timers, the first due first.
    pub timers: Vec<PendingTimer>,
    /// Every attempt of every call, oldest first.
    pub attempts: Vec<Attempt>,
    /// The history, oldest first.
    pub entries: Vec<HistoryEntry>,
}

/// A page of instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The instances.
    pub instances: Vec<InstanceView>,
    /// The instances of the page that have a value which cannot be decoded, with their positions in the order of the page.
    pub unreadable: Vec<(After, Unreadable)>,
    /// The instance after which the next page begins, or `None` on the last page.
    pub next: Option<After>,
    /// True if the page ended at the limit on rows examined, and not because it is full.
    pub was_cut: bool,
}

impl Admin {
    /// A page of the machine's instances that match the filter. Returns an `is_input` error if the machine lacks a search field of the filter.
    pub async fn page(&self, machine: &str, filter: &PageFilter) -> Result<Listed, Error> {
        self.engine
            .read(|| async {
                let mut reader = self.engine.store.reader().await?;
                let conn = &mut reader.conn();
                let known = &self.machine(machine)?.machine;
                search::check(conn, known, filter).await?;
                let Found { rows, mut unreadable, next, was_cut } = pages::page(conn, machine, filter).await?;
                let with = with_calls(conn, rows, &known.search, &self.engine.data_protection).await?;
                unreadable.extend(with.unreadable.into_iter().map(|(id, one)| (filter.position(id, &one.key), one)));
                Ok(Listed { instances: with.instances.into_iter().map(|seen| self.shown(seen)).collect(), unreadable, next, was_cut })
            })
            .await
    }

    /// All that is known of one instance. Returns an `is_not_found` error if there is none.
    pub async fn details(&self, machine: &str, key: &str) -> Result<InstanceDetails, Error> {
        encode::check_key(key)?;
        self.engine.read(|| self.look_at(machine, key)).await
    }

    /// The id of an instance. Returns an `is_not_found` error if there is none.
    pub async fn instance_id(&self, machine: &str, key: &str) -> Result<InstanceId, Error> {
        encode::check_key(key)?;
        let found =
            self.engine.read(|| async { Ok(rows::find(&mut self.engine.store.reader().await?.conn(), machine, key).await?) }).await?;
        found.map(|found| found.instance.id).ok_or_else(|| Error::not_found(machine, key))
    }

    async fn look_at(&self, machine: &str, key: &str) -> Result<InstanceDetails, Error> {
        let mut reader = self.engine.store.reader().await?;
        let conn = &mut reader.conn();
        let row = rows::find(conn, machine, key).await?.ok_or_else(|| Error::not_found(machine, key))?;
        let attempts = calls_of(conn, &row, &self.engine.data_protection).await?;
        let row = row.instance;
        let entries = history::merged(attempts.clone(), rows::notes(conn, row.id).await?);
        let inbox = overview::inbox(conn, row.id).await?;
        let timers = overview::timers(conn, row.id).await?;
        let full_inbox = outbox::full_inbox_of(conn, Target { machine, key }, MOST_COUNTED).await?;
        let newest_call = row.newest.map(|(call, _)| call);
        let newest = row.newest.filter(|_| row.is_open);
        let back = |by: u32| newest.and_then(|(call, number)| attempts.iter().find(|one| one.call == call && one.number + by == number));
        let (live, before) = (back(0), back(1));
        let fields =
            search::fields_of(conn, self.engine.catalog.search_fields(machine), &[row.id]).await?.remove(&row.id).unwrap_or_default();
        let mut seen = InstanceView { fields, ..InstanceView::new(row, live, before, &self.engine.data_protection) };
        seen.read_family(conn).await?;
        let elsewhere = seen.parent_elsewhere(conn).await?;
        let children = family::first_children(conn, &seen.row, CHILDREN).await?;
        let trace = traces::of(conn, newest_call.as_slice()).await?.into_values().next();
        drop(reader);
        if let Some((id, elsewhere)) = elsewhere {
            seen.parent = match &self.url {
                Some(directory) => parent_from(directory, id, elsewhere).await,
                None => self.engine.parent_elsewhere(id, elsewhere).await,
            };
        }
        Ok(InstanceDetails { seen: self.shown(seen), children, inbox, full_inbox, trace, timers, entries, attempts })
    }

    /// The instance as it is now, and then after each change that is seen, until the instance has ended.
    pub fn watch(&self, machine: &str, key: &str) -> InstanceWatch {
        InstanceWatch::new(Arc::clone(&self.engine), self.client_guard.clone(), machine, key)
    }

    /// The number of instances of a machine by status and state. Reads all of them.
    pub async fn counts(&self, machine: &str) -> Result<Vec<(Status, Option<String>, u64)>, Error> {
        self.engine.read(|| async { Ok(rows::counts(&mut self.engine.store.reader().await?.conn(), machine).await?) }).await
    }

    /// The numbers of a machine's newest instances by status and state, at most `most` for each status, and the statuses that have more.
    /// Ended instances are counted together; `Completed` in the second list stands for all of them.
    pub async fn newest_counts(&self, machine: &str, most: u32) -> Result<(Vec<(Status, Option<String>, u64)>, Vec<Status>), Error> {
        self.engine.read(|| async { Ok(rows::newest_counts(&mut self.engine.store.reader().await?.conn(), machine, most).await?) }).await
    }

    /// The number of instances of a machine, and the number in error, each counted up to `most`.
    pub async fn sizes(&self, machine: &str, most: u32) -> Result<(u64, u64), Error> {
        self.engine.read(|| async { Ok(overview::sizes(&mut self.engine.store.reader().await?.conn(), machine, most).await?) }).await
    }

    /// The machine's instances in error that were created before `before`, newest first, at most `limit`.
    pub async fn failing(&self, machine: &str, before: Option<InstanceId>, limit: u32) -> Result<Vec<Failing>, Error> {
        let mut failing = self
            .engine
            .read(|| async { Ok(overview::failing(&mut self.engine.store.reader().await?.conn(), machine, before, limit).await?) })
            .await?;
        for one in &mut failing {
            let owner = Owner { machine, key: &one.key };
            one.error = self.engine.data_protection.open_error(owner, &one.error).into_owned();
        }
        Ok(failing)
    }

    /// The machine's instances whose open attempt follows a failed or lost one, in the order in which the attempts are due, at most
    /// `limit`. Examines the first `look_at` scheduled attempts and all executing ones. Paused instances are left out.
    pub async fn retrying(&self, machine: &str, limit: u32, look_at: u32) -> Result<Vec<Retrying>, Error> {
        let mut retrying = self
            .engine
            .read(|| async { Ok(overview::retrying(&mut self.engine.store.reader().await?.conn(), machine, limit, look_at).await?) })
            .await?;
        for Retrying { failing, .. } in &mut retrying {
            let owner = Owner { machine, key: &failing.key };
            failing.error = self.engine.data_protection.open_error(owner, &failing.error).into_owned();
        }
        Ok(retrying)
    }

    /// The events that instances of a machine rejected, newest first, at most `limit`, of calls made before `before`.
    /// Examines the newest 20,000 of all machines.
    pub async fn rejected(&self, machine: &str, before: Option<CallId>, limit: u32) -> Result<Vec<RejectedEvent>, Error> {
        self.engine
            .read(|| async { Ok(overview::rejected(&mut self.engine.store.reader().await?.conn(), machine, before, limit).await?) })
            .await
    }

    /// The instances of a machine for whose inbox events wait in the outbox, those that are delivered next first, at most `limit`.
    pub async fn full_inboxes(&self, machine: &str, limit: u32) -> Result<Vec<FullInbox>, Error> {
        self.engine
            .read(|| async { Ok(outbox::full_inboxes(&mut self.engine.store.reader().await?.conn(), machine, limit, MOST_COUNTED).await?) })
            .await
    }

    /// The number of events that a machine rejected, newest first, counted up to `most`, among the newest 20,000 of all machines.
    pub async fn rejected_count(&self, machine: &str, most: u32) -> Result<RejectedCount, Error> {
        self.engine
            .read(|| async { Ok(overview::rejected_count(&mut self.engine.store.reader().await?.conn(), machine, most).await?) })
            .await
    }

    /// The acts of operators on all machines before `before`, newest first, at most `limit`, and the id before which the next ones are. Reads at most
    /// 20,000 entries of the history.
    pub async fn acts(&self, before: Option<i64>, limit: u32) -> Result<Vec<OperatorAct>, Error> {
        self.engine.read(|| async { Ok(acts::acts(&mut self.engine.store.reader().await?.conn(), before, limit).await?) }).await
    }

    /// The view with a record that a person can read, or with the reason why it cannot be read.
    fn shown(&self, mut seen: InstanceView) -> InstanceView {
        let row = &mut seen.row;
        if let Some(record) = row.record.take() {
            let opened = self.engine.data_protection.open(&Owner::of(row).record(), &record);
            let json = match &opened {
                Ok(plain) => self.redacted(Redactable::record(&row.machine, &String::from_utf8_lossy(plain))),
                Err(why) => serde_json::Value::from(format!("(the record cannot be read: {why})")).to_string(),
            };
            row.record = Some(json.into_bytes());
        }
        self.redact_fields(&mut seen);
        if let Some(progress) = seen.call.as_mut().and_then(|call| call.progress.as_mut()) {
            let text = self.redacted(Redactable::record(&seen.row.machine, &progress.value.to_string()));
            progress.value = serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
        }
        seen
    }

    /// Redacts the search fields as the record that they are parts of.
    fn redact_fields(&self, seen: &mut InstanceView) {
        if seen.fields.is_empty() {
            return;
        }
        let fields = seen.fields.iter().map(|field| (field.name.clone(), field.value.as_str().into()));
        let plain = serde_json::Value::Object(fields.collect());
        let shown = self.redacted(Redactable::record(&seen.row.machine, &plain.to_string()));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        for field in &mut seen.fields {
            field.value = match &shown[field.name.as_str()] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
        }
    }

    /// The attempts and timers of a machine that are due next, in order, at most `limit`.
    pub async fn to_come(&self, machine: &str, limit: u32) -> Result<Vec<Coming>, Error> {
        self.engine
            .read(|| async { Ok(overview::to_come(&mut self.engine.store.reader().await?.conn(), machine, self.now(), limit).await?) })
            .await
    }

    /// The machine's attempts that are due and not claimed, counted up to `most`.
    pub async fn overdue(&self, machine: &str, most: u32) -> Result<Overdue, Error> {
        self.engine
            .read(|| async { Ok(overview::overdue(&mut self.engine.store.reader().await?.conn(), machine, self.now(), most).await?) })
            .await
    }

    /// The attempts of the newest calls of all machines, newest first.
    pub async fn newest(&self, limit: u32) -> Result<Vec<Times>, Error> {
        self.engine.read(|| async { Ok(overview::newest(&mut self.engine.store.reader().await?.conn(), limit).await?) }).await
    }
}

/// The parent of an instance, which is in another partition, by a connection of its own; `None` if retention has deleted it. If it cannot be read,
/// the parent is shown as running and without its state.
async fn parent_from(directory: &str, id: InstanceId, elsewhere: ParentElsewhere) -> Option<Relative> {
    let read = async {
        let opened = Opening::to_read(directory).of_key(&elsewhere.key).store(true).await.ok()?;
        let found = async { family::relative(&mut opened.store.reader().await?.conn(), id).await }.await;
        opened.close().await;
        found.ok()
    };
    let found = tokio::time::timeout(ANOTHER_PARTITION, read).await.ok().flatten();
    found.unwrap_or_else(|| Some(unread(elsewhere)))
}
