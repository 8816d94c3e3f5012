//! Delivers the events that wait in the outbox of a partition to the instances of other partitions. Any worker does it.
//!
//! `fsm_core::commit::partition_delivery` has the protocol of a delivery. Here are its reads, its sends and its writes. Each partition is served
//! on its own, so that one that cannot be reached delays no event for another.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use fsm_core::commit::family_notice::FamilyNotice;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::partition_delivery::{ClaimedLine, Delivery, LONGEST_CLAIM, SendAnswer, WaitingEvent, claim_until};
use fsm_core::commit::request::RequestKind;
use fsm_core::commit::rows::Target;
use fsm_core::decide::send::Send;
use fsm_core::ids::CallId;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::partition_outbox::{self, Backlog};
use fsm_store::traces;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use tokio::time::Instant;

use crate::committer::request::Request;
use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Kind};
use crate::preference::Turn;
use crate::redact::Redactable;
use crate::search;

/// The maximum number of due events of which one scan finds the receivers.
const FOUND_AT_ONCE: u32 = 1000;
/// The maximum number of receivers of one partition that are served at the same time.
const AT_THE_SAME_TIME: usize = 64;
/// The maximum number of events for one receiver that one claim has.
const OF_ONE_LINE: u32 = 100;

impl Engine {
    /// Serves each partition for which events are due, and scans when an event is sent or comes due, and at least at every poll interval. At
    /// a shutdown it releases what it has claimed.
    pub(crate) async fn partition_outbox_loop(self: Arc<Self>) {
        let (Some(work), Some(here)) = (&self.work, self.partition) else { return };
        let _delivers = work.delivers.lock().await;
        let (mut served, mut serving) = (HashSet::new(), FuturesUnordered::new());
        while self.may_start() {
            let now = self.clock.now();
            let mut scan = pin!(self.targets(here.of()));
            let targets = loop {
                tokio::select! {
                    targets = &mut scan => break targets,
                    // Deliveries go on meanwhile: they may have the connection that the scan waits for.
                    Some(target) = serving.next(), if !serving.is_empty() => drop(served.remove(&target)),
                }
            };
            let targets = targets.unwrap_or_else(|error| {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the outbox of the partition cannot be read, and this is tried again");
                }
                Vec::new()
            });
            let (due, later): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(_, due_at)| *due_at <= now);
            for (target, _) in due {
                if served.insert(target) {
                    serving.push(self.serve(target));
                }
            }
            let next = later.iter().map(|(_, due_at)| *due_at).min().and_then(|next| self.clock.until(next));
            let poll = work.preference.poll(Turn::PartitionOutbox);
            tokio::select! {
                Some(target) = serving.next(), if !serving.is_empty() => drop(served.remove(&target)),
                () = self.has_event_elsewhere.notified() => {}
                () = tokio::time::sleep(next.unwrap_or(poll).min(poll)) => {}
                () = work.stops() => {}
            }
        }
        while serving.next().await.is_some() {}
    }

    /// Delivers what is due for other partitions, and returns the number of events that were taken or refused.
    #[cfg(feature = "testing")]
    pub(crate) async fn deliver_to_partitions(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(here) = self.partition else { return Ok(0) };
        let mut delivered = 0;
        for (target, _) in self.targets(here.of()).await? {
            delivered += self.deliver_to_partition(target).await?;
        }
        Ok(delivered)
    }

    /// The time at which the next event for another partition is due.
    #[cfg(feature = "testing")]
    pub(crate) async fn next_for_partitions(&self) -> Result<Option<Timestamp>, Error> {
        let Some(here) = self.partition else { return Ok(None) };
        Ok(self.targets(here.of()).await?.into_iter().map(|(_, due_at)| due_at).min())
    }

    /// The events that wait for other partitions, without delayed ones. At most `most` are counted for each partition.
    pub(crate) async fn backlog_for_partitions(&self, conn: &mut Conn<'_>, most: u32) -> Result<Vec<Backlog>, Error> {
        let (Some(here), now) = (self.partition, self.clock.now()) else { return Ok(Vec::new()) };
        Ok(partition_outbox::backlog(conn, here.of(), now, now + LONGEST_CLAIM, most).await?)
    }

    async fn targets(&self, partitions: u32) -> Result<Vec<(u32, Timestamp)>, Error> {
        let mut reader = self.engine_reader().await?;
        Ok(partition_outbox::targets(&mut reader.conn(), partitions, &self.catalog.names).await?)
    }

    /// Delivers what is due for one partition, and returns its number.
    async fn serve(self: &Arc<Self>, target: u32) -> u32 {
        let Err(error) = self.deliver_to_partition(target).await else { return target };
        if !self.outage.reports(&error) {
            tracing::warn!(%error, to = target, "the events for another partition cannot be read, and this is tried again");
        }
        if let Some(work) = &self.work {
            tokio::select! {
                () = tokio::time::sleep(work.poll) => {}
                () = work.stops() => {}
            }
        }
        target
    }

    /// Delivers the events that are due for one partition, and returns the number of those that were taken or refused.
    async fn deliver_to_partition(self: &Arc<Self>, target: u32) -> Result<usize, Error> {
        let now = self.clock.now();
        let mut reader = self.engine_reader().await?;
        let receivers = partition_outbox::due(&mut reader.conn(), target, &self.catalog.names, now, FOUND_AT_ONCE).await?;
        drop(reader);
        let each = stream::iter(receivers).map(|(machine, key)| self.deliver_to_receiver(machine, key));
        let done: Vec<_> = each.buffer_unordered(AT_THE_SAME_TIME).collect().await;
        done.into_iter().sum()
    }

    /// Delivers the events for one receiver, in their order. The first one that cannot be delivered ends it.
    async fn deliver_to_receiver(self: &Arc<Self>, machine: String, key: String) -> Result<usize, Error> {
        let (now, begun) = (self.clock.now(), Instant::now());
        let until = claim_until(now, self.limits.patience);
        let receiver = Target { machine: &machine, key: &key };
        let line = match partition_outbox::claim(&self.store, receiver, now, until, OF_ONE_LINE).await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(0),
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(machine, key, %error, "an event for another partition cannot be read, and those behind it wait");
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        let ends = begun + until.since(now);
        let known = self.catalog.get(&machine).map(|known| &known.machine);
        let is_known = |event: &str| known.is_some_and(|machine| machine.has_event(event));
        let (mut delivery, mut failure) = (Delivery::new(line), None);
        while let Some(event) = delivery.next(begun.elapsed(), is_known).cloned() {
            let sent = tokio::select! {
                biased;
                sent = self.send_to_partition(delivery.line(), &event, ends) => sent,
                // No commit of it begins any more. If one is in flight, the event may still be taken, and it is taken once nevertheless.
                () = self.stops() => Err(Error::stopping()),
            };
            let answer = match &sent {
                Ok(answer) => answer.clone(),
                Err(error) => match error.cause() {
                    Kind::Refused(refusal) => SendAnswer::from(refusal),
                    Kind::Stopping => SendAnswer::Stopping,
                    Kind::Store(_) | Kind::Other(..) => SendAnswer::Failed,
                },
            };
            if let SendAnswer::Refused(refusal) = &answer {
                match event.notice {
                    None => tracing::warn!(machine, key, event = event.event.name, %refusal, "an event from another partition is rejected"),
                    Some(FamilyNotice::Cancel { .. } | FamilyNotice::Report(_)) => {}
                    Some(FamilyNotice::Start(_)) => {
                        tracing::warn!(machine, key, %refusal, "a child cannot be started in another partition, and counts as cancelled")
                    }
                }
            }
            failure = sent.err().filter(|_| answer == SendAnswer::Failed);
            delivery.answered(answer);
        }
        let delivered = self.finish_delivery(&delivery, failure).await?;
        self.note_reports(delivery.not_started());
        Ok(delivered)
    }

    /// Writes the end of a claim, and returns the number of events that were taken or refused. Without it, the line would wait until the claim
    /// ends.
    async fn finish_delivery(&self, delivery: &Delivery, failure: Option<Error>) -> Result<usize, Error> {
        let now = self.clock.now();
        let (line, mut finish) = (delivery.line(), delivery.finish(now));
        for note in finish.notes.iter_mut().filter(|note| partition_outbox::is_of_schedule(note)) {
            let text = self.data_protection.redaction.of(Redactable::error(&line.machine, &line.key, &note.detail));
            note.detail = self.stored_reason(&text).to_owned();
        }
        let tries = finish.again.tries;
        if let Some(error) = failure.filter(|error| tries.is_power_of_two() && !error.is_busy() && !self.outage.reports(error)) {
            let ClaimedLine { machine, key, .. } = line;
            tracing::warn!(machine, key, tries, %error, "an event for another partition cannot be delivered; it is tried again");
        }
        for tries in 0.. {
            let Err(error) = partition_outbox::finish(&self.store, line, &finish, now).await else { break };
            let wait = delivery.finish_again(tries, self.clock.now()).filter(|_| error.is_transient() && self.may_start());
            let Some(wait) = wait else { return Err(error.into()) };
            tokio::time::sleep(wait).await;
        }
        Ok(finish.delivered.len())
    }

    /// Sends one event to the engine of the receiver's partition. No commit of it begins after `ends`.
    async fn send_to_partition(&self, line: &ClaimedLine, waiting: &WaitingEvent, ends: Instant) -> Result<SendAnswer, Error> {
        let Some(there) = self.of_key(&line.key) else { return Err(Error::stopping()) };
        let kind = match &waiting.notice {
            None => RequestKind::Send(Send { search: search_of_first(&there, line, waiting)?, ..waiting.send(there.limits.inbox) }),
            Some(FamilyNotice::Start(start)) => self.start_of(line, waiting, start, search_of_first(&there, line, waiting)?)?,
            Some(FamilyNotice::Cancel { group, reason }) => self.cancellation_of(waiting, *group, reason),
            // In a box, because most rows are events.
            Some(FamilyNotice::Report(report)) => return Box::pin(self.send_report(&there, waiting, report)).await,
        };
        let trace = self.trace_of_waiting(waiting.call).await?;
        let target = InstanceKey::new(&line.machine, &line.key);
        there.request_until(ends, |reply| Request::new(target, kind, Some(reply)).traced(trace)).await.map(|_| SendAnswer::Taken)
    }

    async fn trace_of_waiting(&self, call: CallId) -> Result<Option<TraceContext>, Error> {
        if !self.is_traced() {
            return Ok(None);
        }
        let mut reader = self.engine_reader().await?;
        Ok(traces::of(&mut reader.conn(), &[call]).await?.remove(&call))
    }
}

/// The search fields of an instance that the event may create.
fn search_of_first(there: &Engine, line: &ClaimedLine, waiting: &WaitingEvent) -> Result<Vec<SearchField>, Error> {
    let WaitingEvent { call, event, .. } = waiting;
    let machine = there.catalog.get(&line.machine).map(|known| &known.machine);
    let Some(machine) = machine.filter(|machine| !machine.search.is_empty() && machine.edge(None, &event.name).is_some()) else {
        return Ok(Vec::new());
    };
    let owner = Owner { machine: &line.machine, key: &line.key };
    let plain = there
        .data_protection
        .open(&owner.payload(*call), &event.payload)
        .map_err(|why| Error::other(ErrorKind::Codec, format!("the event `{}` cannot be read: {why}", event.name)))?;
    Ok(search::of_event(&machine.search, &plain))
}
