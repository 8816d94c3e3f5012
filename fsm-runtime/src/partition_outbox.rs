//! Delivers the events that wait in the outbox of a partition to the instances of other partitions. Any worker does it.
//!
//! A worker claims all events for one receiver, sends them one after the other, and then deletes them. Their call ids are their deduplication
//! ids, so that an event that is sent again is taken once. Each partition is served on its own, so that one that cannot be reached delays
//! no event for another.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::changes::NoteKind;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::RequestKind;
use fsm_core::commit::rows::{SenderNote, Target};
use fsm_core::decide::outbox::backoff;
use fsm_core::decide::send::{Dedup, Send as Delivery};
use fsm_core::ids::CallId;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;
use fsm_store::conn::Conn;
use fsm_store::partition_outbox::{self, Again, Backlog, ClaimedLine, WaitingEvent};
use fsm_store::traces;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};

use crate::committer::request::Request;
use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::search;

/// The maximum number of due events of which one scan finds the receivers.
const FOUND_AT_ONCE: u32 = 1000;
/// The maximum number of receivers of one partition that are served at the same time.
const AT_THE_SAME_TIME: usize = 64;
/// The maximum number of events for one receiver that one claim has.
const OF_ONE_LINE: u32 = 100;
/// The longest duration of a claim. A process that dies keeps its events from others until its claim ends.
const LONGEST_CLAIM: Duration = Duration::from_secs(60);
/// No further event is sent under a claim that has lasted this long. The claim lasts for the patience of one send longer.
const SENDS: Duration = Duration::from_secs(5);

/// The result of a delivery to a partition.
struct Served {
    /// The number of events that were taken or refused.
    delivered: usize,
    /// Events wait for machines that this program does not have, and stay due.
    has_unknown_machines: bool,
}

/// The reason why the rest of a line is not delivered now.
enum StoppedBy {
    Failure(Error),
    /// Code that has the event delivers it, and all events behind it.
    UnknownEvent,
}

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
            tokio::select! {
                Some(target) = serving.next(), if !serving.is_empty() => drop(served.remove(&target)),
                () = self.has_event_elsewhere.notified() => {}
                () = tokio::time::sleep(next.unwrap_or(work.poll).min(work.poll)) => {}
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
            delivered += self.deliver_to_partition(target).await?.delivered;
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
        Ok(partition_outbox::targets(&mut reader.conn(), partitions).await?)
    }

    /// Delivers what is due for one partition, and returns its number.
    async fn serve(self: &Arc<Self>, target: u32) -> u32 {
        let is_blocked = match self.deliver_to_partition(target).await {
            Ok(served) => served.delivered == 0 && served.has_unknown_machines,
            Err(error) => {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, to = target, "the events for another partition cannot be read, and this is tried again");
                }
                true
            }
        };
        if let Some(work) = self.work.as_ref().filter(|_| is_blocked) {
            tokio::select! {
                () = tokio::time::sleep(work.poll) => {}
                () = work.stops() => {}
            }
        }
        target
    }

    /// Delivers the events that are due for one partition.
    async fn deliver_to_partition(self: &Arc<Self>, target: u32) -> Result<Served, Error> {
        let now = self.clock.now();
        let mut reader = self.engine_reader().await?;
        let receivers = partition_outbox::due(&mut reader.conn(), target, now, FOUND_AT_ONCE).await?;
        drop(reader);
        let (known, unknown): (Vec<_>, Vec<_>) = receivers.into_iter().partition(|(machine, _)| self.catalog.get(machine).is_some());
        let each = stream::iter(known).map(|(machine, key)| self.deliver_to_receiver(machine, key));
        let done: Vec<_> = each.buffer_unordered(AT_THE_SAME_TIME).collect().await;
        Ok(Served { delivered: done.into_iter().sum::<Result<_, _>>()?, has_unknown_machines: !unknown.is_empty() })
    }

    /// Delivers the events for one receiver, in their order. The first one that cannot be delivered ends it.
    async fn deliver_to_receiver(self: &Arc<Self>, machine: String, key: String) -> Result<usize, Error> {
        let (now, begun) = (self.clock.now(), Instant::now());
        let receiver = Target { machine: &machine, key: &key };
        let until = now + self.limits.patience.saturating_add(SENDS).min(LONGEST_CLAIM);
        let Some(line) = partition_outbox::claim(&self.store, receiver, now, until, OF_ONE_LINE).await? else { return Ok(0) };
        let known = self.catalog.get(&machine).map(|known| &known.machine);
        let (mut delivered, mut notes, mut stopped_by) = (Vec::with_capacity(line.events.len()), Vec::new(), None);
        for event in &line.events {
            if known.is_none_or(|machine| !machine.has_event(&event.event.name)) {
                stopped_by = Some(StoppedBy::UnknownEvent);
                break;
            }
            let sent = tokio::select! {
                biased;
                sent = self.send_to_partition(&line, event) => sent,
                // The event may still be taken. If another process sends it again, it is taken once nevertheless.
                () = self.stops() => Err(Error::stopping()),
            };
            match sent {
                Ok(()) => {}
                Err(error) if error.is_refused() => {
                    let refusal = error.to_string();
                    tracing::warn!(machine, key, event = event.event.name, %refusal, "an event from another partition is rejected");
                    notes.push(SenderNote { sender: event.sender, kind: NoteKind::Rejected, call: event.call, detail: refusal });
                }
                Err(error) => {
                    stopped_by = Some(StoppedBy::Failure(error));
                    break;
                }
            }
            delivered.push(event.call);
            if begun.elapsed() >= SENDS {
                break;
            }
        }
        let now = self.clock.now();
        let again = self.again(&line, delivered.len(), stopped_by, now);
        // Without it, the line would wait until the claim ends.
        let mut tries = 0;
        loop {
            match partition_outbox::finish(&self.store, &line, &delivered, &notes, again, now).await {
                Ok(_) => return Ok(delivered.len()),
                Err(error) if !error.is_transient() || !self.may_start() || self.clock.now() >= until => return Err(error.into()),
                Err(_) => tokio::time::sleep(backoff(tries)).await,
            }
            tries = tries.saturating_add(1);
        }
    }

    /// The next delivery of a line, after the first `delivered` of its events were delivered.
    fn again(&self, line: &ClaimedLine, delivered: usize, stopped_by: Option<StoppedBy>, now: Timestamp) -> Again {
        let tries = if delivered == 0 { line.events[0].tries.saturating_add(1) } else { 0 };
        match stopped_by {
            None => Again { due_at: now, tries: 0 },
            Some(StoppedBy::Failure(error)) if error.is_stopping() => Again { due_at: now, tries: tries.saturating_sub(1) },
            Some(StoppedBy::Failure(error)) => {
                if tries.is_power_of_two() && !error.is_busy() && !self.outage.reports(&error) {
                    let ClaimedLine { machine, key, .. } = line;
                    tracing::warn!(machine, key, tries, %error, "an event for another partition cannot be delivered; it is tried again");
                }
                Again { due_at: now + backoff(tries), tries }
            }
            Some(StoppedBy::UnknownEvent) => Again { due_at: now + backoff(tries), tries },
        }
    }

    /// Sends one event to the engine of the receiver's partition.
    async fn send_to_partition(&self, line: &ClaimedLine, waiting: &WaitingEvent) -> Result<(), Error> {
        let Some(there) = self.of_key(&line.key) else { return Err(Error::stopping()) };
        let WaitingEvent { call, event, priority, .. } = waiting;
        let trace = self.trace_of_waiting(*call).await?;
        let owner = Owner { machine: &line.machine, key: &line.key };
        let machine = there.catalog.get(&line.machine).map(|known| &known.machine);
        // Only an event that can create the instance gives it search fields.
        let search = match machine.filter(|machine| !machine.search.is_empty() && machine.edge(None, &event.name).is_some()) {
            None => Vec::new(),
            Some(machine) => {
                let plain = there
                    .data_protection
                    .open(&owner.payload(*call), &event.payload)
                    .map_err(|why| Error::other(ErrorKind::Codec, format!("the event `{}` cannot be read: {why}", event.name)))?;
                search::of_event(&machine.search, &plain)
            }
        };
        // The control character keeps this id apart from the dedup ids of senders. The id of the call identifies the content.
        let dedup = Some(Dedup { id: format!("\u{2}{call}"), digests: vec![call.0.as_bytes().to_vec()] });
        let send = Delivery { dedup, search, priority: *priority, ..Delivery::new(*call, event.clone(), there.limits.inbox) };
        let target = InstanceKey::new(&line.machine, &line.key);
        let sent = there.request(|reply| Request::new(target, RequestKind::Send(send), Some(reply)).traced(trace)).await;
        match sent {
            // It was sent before, and its event has another name since a mapping renamed it.
            Err(error) if error.is_conflict() => Ok(()),
            sent => sent.map(drop),
        }
    }

    async fn trace_of_waiting(&self, call: CallId) -> Result<Option<TraceContext>, Error> {
        if !self.is_traced() {
            return Ok(None);
        }
        let mut reader = self.engine_reader().await?;
        Ok(traces::of(&mut reader.conn(), &[call]).await?.remove(&call))
    }
}
