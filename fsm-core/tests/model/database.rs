//! The database of a commit: each method is what `fsm-store` does with SQL, on the tables as values. A broken engine makes its mistakes
//! here, where the protocol meets the database.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, Note, NoteKind, Request as Dedup, Waiting};
use fsm_core::commit::database::Database;
use fsm_core::commit::request::RequestKind;
use fsm_core::commit::rows::{
    ChildEvent, FileVersion, InLine, KnownCall, Locked, Locks, OpenChildren, Put, RemoteChild, RemoteToCancel, RowSnapshot, RowVersion,
    SenderNote, Target, ToPartition, Unsent,
};
use fsm_core::commit::written::Written;
use fsm_core::decide::inbox::Inbox;
use fsm_core::decide::refusal::Refusal;
use fsm_core::ids::{CallId, InstanceId, TimerId};
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::Outcome;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;

use super::Model;
use super::commit::{Link, Phase, Shared, Stop, Way};
use super::outbox::Delayed;
use super::promise::Broken;
use super::queue::{Origin, Request, key_index};
use super::variant::Variant;
use super::write_path;

/// The engine asks for the first eight events of an inbox. The model gives it one, so that it has to ask for more.
const FIRST: i64 = 1;
/// The engine asks for eight times as many then. The model gives it twice as many.
const A_QUARTER: i64 = 4;

pub struct ModelDatabase {
    link: Link,
    batch: Vec<Request>,
    /// The requests whose own changes are still to be written.
    unwritten: Vec<Request>,
    now: Timestamp,
    way: Way,
    variant: Variant,
    /// The events that a broken engine drops from the inbox, by their instances and positions.
    dropped: Vec<(InstanceId, i64)>,
}

impl ModelDatabase {
    pub fn new(link: Link, batch: Vec<Request>, now: Timestamp, way: Way, variant: Variant) -> ModelDatabase {
        ModelDatabase { link, unwritten: batch.clone(), batch, now, way, variant, dropped: Vec::new() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        self.link.with(|model, _| act(model))
    }

    /// Reads after the rows of the instances. Without locks, other processes may have committed since.
    async fn read<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        self.link.enter(Phase::Reads).await;
        self.with(act)
    }

    /// Writes after the decision.
    async fn decided<T>(&self, act: impl FnOnce(&mut Model, &mut Shared) -> T) -> T {
        self.link.enter(Phase::Decided).await;
        self.link.with(act)
    }

    fn of_key(&self, key: &str) -> Option<&Request> {
        self.batch.iter().find(|request| &*request.request.target.key == key)
    }

    /// Returns the row as this engine reads it, which differs from the row in the database for some broken engines.
    fn as_read(&mut self, mut instance: Instance) -> Instance {
        let Some(request) = self.of_key(&instance.key) else { return instance };
        let Some(report) = request.report() else { return instance };
        let is_newest = instance.newest == Some((report.attempt.call, report.attempt.number));
        let is_blind =
            self.variant == Variant::LateReportById || (self.variant == Variant::SweepWithoutLooking && request.origin == Origin::Sweeper);
        instance.is_open |= is_newest && is_blind;
        let loses = self.variant == Variant::InterruptLosesToSuccess && is_newest && matches!(report.outcome, Outcome::Success { .. });
        let first = self.with(|model| {
            let first = model.store.waiting(instance.id).into_iter().next().filter(|_| loses && instance.is_open)?;
            model.machine.edge(instance.state.as_deref(), &first.event)?.interrupts.then_some(first.position)
        });
        if let Some(position) = first {
            instance.inbox_head = position + 1;
            self.dropped.push((instance.id, position));
        }
        instance
    }

    /// Makes the mistakes of this engine in what it writes.
    fn mistake(&self, model: &Model, changes: &mut Changes, halves: &mut Vec<Changes>) {
        if let Some((_, dropped)) = self.dropped.iter().find(|(id, _)| *id == changes.instance.id)
            && changes.close.is_some()
        {
            changes.inbox_taken = Some(*dropped..changes.inbox_taken.as_ref().map_or(dropped + 1, |taken| taken.end));
        }
        let is_again = matches!((&changes.close, &changes.open), (Some(close), Some(open)) if close.call == open.attempt.call);
        match (self.variant, &mut changes.close, &mut changes.open) {
            (Variant::LateReportById, Some(close), _) => {
                close.expected = model.store.attempt((close.call, close.number)).map_or(close.expected, |attempt| attempt.state);
            }
            (Variant::SnoozeUsesARetry, Some(close), Some(open)) if close.becomes == AttemptState::Snoozed => {
                let retry_state = &mut Arc::make_mut(&mut open.attempt).retry_state;
                retry_state.remaining = retry_state.remaining.map(|left| left.saturating_sub(1));
            }
            (Variant::RetryOutsideTheTransaction, _, open) if is_again => {
                halves.push(Changes { open: open.take(), ..Changes::of(changes.instance.clone()) });
            }
            _ => {}
        }
    }

    /// Writes all of the changes or nothing, and enters them into the ledger.
    fn write_one(&mut self, model: &mut Model, halves: &mut Vec<Changes>, changes: &Changes) -> Result<Written, Broken> {
        let mut changes = changes.clone();
        self.mistake(model, &mut changes, halves);
        let own = self.unwritten.iter().position(|request| *request.request.target.key == *changes.instance.key);
        let own = own.map(|place| self.unwritten.remove(place)).filter(|request| !matches!(request.request.kind, RequestKind::Deliver));
        let held = changes.close.as_ref().and_then(|close| model.store.calls.get(&(close.call, close.number))).cloned();
        // Only a single statement can leave out the guard of a key.
        let is_guarded = self.variant == Variant::KeyWithoutGuard && self.way != Way::AtOnce;
        let variant = if is_guarded { Variant::True } else { self.variant };
        Ok(match model.store.write(&changes, variant)? {
            write_path::Written::Outdated => Written::Outdated,
            write_path::Written::Done => {
                model.ledger.account(&model.store, &changes, held.as_ref(), own.as_ref())?;
                let opened = changes.open.as_ref().map(|open| (open.attempt.call, open.attempt.number));
                let payload = opened.and_then(|opened| model.store.calls.get(&opened)).and_then(|row| row.payload.clone());
                Written::Done { payload }
            }
        })
    }

    /// Checks the guard of one change of a single statement. Other processes have locked the instances `locked`.
    fn is_as_seen(&self, model: &Model, changes: &Changes, seen: &HashMap<InstanceId, Instance>, locked: u8) -> bool {
        let Some(there) = model.store.instances.get(&changes.instance.id) else { return changes.is_new };
        let is_same = match (self.variant, seen.get(&changes.instance.id)) {
            (Variant::RowVersionNotCompared, _) => true,
            (Variant::VersionForARowVersion, Some(seen)) => there.version == seen.version,
            (Variant::RowVersionReadLater, Some(seen)) => there.row_version == seen.row_version,
            _ => there.row_version == changes.instance.row_version,
        };
        let is_free = locked & (1 << key_index(&changes.instance.key)) == 0 || self.variant == Variant::RowVersionWithoutLock;
        changes.is_new || (is_same && is_free)
    }
}

impl Database for ModelDatabase {
    type Error = Stop;

    async fn lock(&mut self, targets: &[Target<'_>], _locks: Locks) -> Result<(Vec<Option<Locked>>, Vec<usize>), Stop> {
        let mut locked = Vec::with_capacity(targets.len());
        for target in targets {
            let row = self.with(|model| model.store.instance(target.key).cloned()).map(|row| self.as_read(row));
            locked.push(row.map(|instance| {
                self.with(|model| Locked {
                    newest: instance.newest.and_then(|newest| model.store.attempt(newest)).cloned().map(Arc::new),
                    has_timer: model.store.has_timer(instance.id),
                    instance,
                })
            }));
        }
        Ok((locked, Vec::new()))
    }

    async fn see(&mut self, targets: &[Target<'_>], file_version: Option<FileVersion>) -> Result<Vec<Option<RowSnapshot>>, Stop> {
        let mut all = Vec::with_capacity(targets.len());
        for target in targets {
            let seen = self.with(|model| model.store.see(target.key, file_version.map_or(RowVersion::Row, RowVersion::FileVersion)));
            let seen = seen.map(|seen| RowSnapshot { instance: Arc::new(self.as_read(Instance::clone(&seen.instance))), ..seen });
            self.link.with(|_, shared| shared.seen.extend(seen.clone()));
            all.push(seen);
        }
        Ok(all)
    }

    async fn inbox_ends(&mut self, instances: &[&Instance], most: i64) -> Result<HashMap<InstanceId, Inbox>, Stop> {
        let of = |model: &mut Model, instance: &Instance| model.store.inbox(instance, most.min(FIRST));
        Ok(self.read(|model| instances.iter().map(|instance| (instance.id, of(model, instance))).collect()).await)
    }

    async fn inbox(&mut self, instance: &Instance, most: i64) -> Result<Vec<Waiting>, Stop> {
        let most = most / A_QUARTER;
        Ok(self.read(|model| model.store.inbox(instance, most).first).await)
    }

    async fn last_attempts(&mut self, calls: &[CallId]) -> Result<Vec<Attempt>, Stop> {
        Ok(self.read(|model| calls.iter().filter_map(|call| model.store.last_attempt(*call)).cloned().collect()).await)
    }

    async fn requests(&mut self, asked: &[(InstanceId, &str)]) -> Result<Vec<(InstanceId, Dedup)>, Stop> {
        let is_blind = self.variant == Variant::DedupWithoutLooking;
        let known = |model: &mut Model| {
            let asked = asked.iter().filter(|(_, dedup)| !is_blind || dedup.starts_with('\u{1}'));
            asked.filter_map(|(id, dedup)| Some((*id, model.store.requests.get(&(*id, (*dedup).to_owned()))?.clone()))).collect()
        };
        Ok(self.read(known).await)
    }

    async fn known(&mut self, calls: &[CallId]) -> Result<Vec<KnownCall>, Stop> {
        Ok(self.read(|model| calls.iter().filter_map(|call| model.store.known_call(*call)).collect()).await)
    }

    async fn has_another_timer(&mut self, instance: InstanceId, beside: TimerId) -> Result<bool, Stop> {
        let is_another = |timer: &fsm_core::changes::Timer| timer.instance == instance && timer.id != beside;
        Ok(self.read(|model| model.store.timers.values().any(|(timer, _)| is_another(timer))).await)
    }

    async fn write(&mut self, changes: &[&Changes], _is_guest: bool) -> Result<Vec<Written>, Stop> {
        self.link.enter(Phase::Decided).await;
        let link = self.link.clone();
        link.with(|model, shared| {
            changes.iter().map(|changes| self.write_one(model, &mut shared.halves, changes)).collect::<Result<_, _>>()
        })
        .map_err(Stop::Broken)
    }

    async fn write_guarded(&mut self, changes: &[(&Changes, Timestamp)]) -> Result<Option<HashSet<InstanceId>>, Stop> {
        // The rows as the decision saw them, or as they are now for an engine that reads the versions later.
        let is_late = self.variant == Variant::RowVersionReadLater;
        let seen: HashMap<_, _> = self.link.with(|model, shared| match is_late {
            true => model.store.instances.clone().into_iter().collect(),
            false => shared.seen.iter().map(|seen| (seen.instance.id, Instance::clone(&seen.instance))).chain(self.cached()).collect(),
        });
        self.link.enter(Phase::Decided).await;
        let link = self.link.clone();
        let good = link.with(|model, shared| {
            let mut good = HashSet::new();
            let holds: Vec<_> = changes.iter().filter(|(one, _)| self.is_as_seen(model, one, &seen, shared.locked)).collect();
            for (one, _) in holds {
                let is_written = matches!(self.write_one(model, &mut shared.halves, one)?, Written::Done { .. });
                good.extend(is_written.then_some(one.instance.id));
            }
            Ok(good)
        });
        let mut good = good.map_err(Stop::Broken)?;
        if self.variant == Variant::StaleAnswered {
            good.extend(changes.iter().map(|(changes, _)| changes.instance.id));
        }
        Ok(Some(good))
    }

    async fn write_added(&mut self, changes: &[&Changes]) -> Result<(), Stop> {
        self.write(changes, false).await.map(drop)
    }

    async fn lines(&mut self, receivers: &[Target<'_>]) -> Result<HashSet<(String, String)>, Stop> {
        let is_blind = matches!(self.variant, Variant::FullInboxDrops | Variant::OutboxOutOfOrder);
        let has_line = |model: &Model, key: &str| !is_blind && model.store.line(key).next().is_some();
        let owned = |target: &Target<'_>| (target.machine.to_owned(), target.key.to_owned());
        let (batch, now) = (self.batch.clone(), self.now);
        self.decided(|model, _| batch.iter().for_each(|request| model.note_sent(request, now))).await;
        Ok(self.decided(|model, _| receivers.iter().filter(|target| has_line(model, target.key)).map(owned).collect()).await)
    }

    async fn line(&mut self, receiver: Target<'_>, limit: u32) -> Result<Vec<InLine>, Stop> {
        let read_before = self.of_key(receiver.key).map(|request| request.read_before.clone()).unwrap_or_default();
        let is_blind = self.variant == Variant::OutboxDeliversTwice;
        Ok(self.decided(|model, _| model.store.in_line(receiver.key, is_blind.then_some(read_before), limit)).await)
    }

    async fn put_in_outbox(&mut self, events: &[Put<'_>], now: Timestamp) -> Result<(), Stop> {
        let is_dropped = self.variant == Variant::FullInboxDrops;
        self.decided(|model, _| {
            for Put { sender, outgoing, due_at } in events {
                if is_dropped {
                    let why = Refusal::Busy { whose: outgoing.key.clone(), why: "its inbox is full".to_owned() };
                    let (call, detail) = (Some(outgoing.id), Some(why.to_string()));
                    model.store.notes.push(Note { instance: *sender, at: now, kind: NoteKind::Rejected, call, detail, actor: None });
                    continue;
                }
                let due_at = due_at.filter(|_| model.store.line(&outgoing.key).next().is_none());
                model.store.outbox.push(Delayed { sender: *sender, outgoing: (*outgoing).clone(), due_at, tries: 0 });
            }
        })
        .await;
        Ok(())
    }

    async fn put_in_partition_outbox(&mut self, events: &[ToPartition<'_>], now: Timestamp) -> Result<(), Stop> {
        let put = |model: &mut Model, _: &mut Shared| {
            events.iter().for_each(|ToPartition { sender, outgoing, .. }| model.put_for_partition(*sender, outgoing, now));
        };
        self.decided(put).await;
        Ok(())
    }

    async fn take_from_outbox(&mut self, calls: &[CallId]) -> Result<bool, Stop> {
        let is_blind = self.variant == Variant::OutboxDeliversTwice;
        let take = |model: &mut Model, _: &mut Shared| {
            let before = model.store.outbox.len();
            model.store.outbox.retain(|delayed| !calls.contains(&delayed.outgoing.id));
            before - model.store.outbox.len() == calls.len()
        };
        Ok(self.decided(take).await || is_blind)
    }

    async fn deliver_again(&mut self, receiver: Target<'_>, due_at: Timestamp, tries: u32) -> Result<(), Stop> {
        let due_at = if self.variant == Variant::OutboxRetriesForEver { self.now } else { due_at };
        self.decided(|model, _| {
            if let Some(first) = model.store.outbox.iter_mut().find(|delayed| delayed.outgoing.key == receiver.key) {
                (first.tries, first.due_at) = (tries, Some(due_at));
            }
        })
        .await;
        Ok(())
    }

    async fn unsend(&mut self, _sends: &[CallId], _now: Timestamp) -> Result<HashMap<CallId, Unsent>, Stop> {
        Ok(HashMap::new())
    }

    async fn unsend_to_partitions(&mut self, sends: &[CallId]) -> Result<HashMap<CallId, Unsent>, Stop> {
        Ok(self.decided(|model, _| model.unsend_to_partition(sends)).await)
    }

    async fn note_senders(&mut self, notes: &[SenderNote], now: Timestamp) -> Result<(), Stop> {
        self.decided(|model, _| notes.iter().for_each(|note| model.note_sender(note, now))).await;
        Ok(())
    }

    async fn child_events(&mut self, _parent: InstanceId, _limit: u32) -> Result<Vec<ChildEvent>, Stop> {
        Ok(Vec::new())
    }

    async fn take_child_events(&mut self, events: &[i64]) -> Result<bool, Stop> {
        Ok(events.is_empty())
    }

    async fn open_children(&mut self, _parent: InstanceId) -> Result<OpenChildren, Stop> {
        Ok(OpenChildren { of_group: false, attached: false })
    }

    async fn put_remote_children(&mut self, children: &[RemoteChild<'_>], _now: Timestamp) -> Result<HashSet<CallId>, Stop> {
        Ok(children.iter().map(|remote| remote.child.id).collect())
    }

    async fn remote_to_cancel(&mut self, _parent: InstanceId, _limit: u32) -> Result<Vec<RemoteToCancel>, Stop> {
        Ok(Vec::new())
    }

    async fn put_traces(&mut self, _traces: &[(CallId, InstanceId, TraceContext)]) -> Result<(), Stop> {
        Ok(())
    }
}

impl ModelDatabase {
    /// The instances of the cached snapshots of the batch.
    fn cached(&self) -> impl Iterator<Item = (InstanceId, Instance)> {
        let cached = self.batch.iter().filter_map(|request| request.request.cached_snapshot(None));
        cached.map(|seen| (seen.instance.id, Instance::clone(&seen.instance)))
    }
}

impl Model {
    /// Enters the events into the ledger that a verb sends with its success.
    fn note_sent(&mut self, request: &Request, now: Timestamp) {
        let Some(report) = request.report() else { return };
        let Some(attempt) = self.store.attempt((report.attempt.call, report.attempt.number)) else { return };
        if attempt.state == AttemptState::Success && attempt.finished_at == Some(now) {
            let sender = attempt.instance;
            for outgoing in report.outcome.sends() {
                if self.partition_elsewhere(&outgoing.key).is_some() {
                    continue;
                }
                let is_immediate = outgoing.deliver_at.is_none_or(|at| at <= now);
                self.ledger.sent.extend(is_immediate.then(|| (outgoing.id, sender, outgoing.key.clone())));
                self.ledger.told.push(outgoing.id);
            }
        }
    }
}

/// True if the database returns the newest attempt with the row that it reads without a lock.
pub fn is_open_or_exhausted(instance: &Instance) -> bool {
    instance.is_open || instance.status == Status::Error
}
