//! Sends the moments of schedules when they are due. Each moment is one transaction: the schedule moves on, and the event is sent.
//!
//! Any worker that declares the schedule does it. A moment that cannot be sent is recorded, and the next one comes as usual.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::decide::schedule::{Step, step};
use fsm_core::hash::fnv1a_128;
use fsm_core::ids::CallId;
use fsm_core::outcome::{Event, Outgoing};
use fsm_core::time::Timestamp;
use fsm_store::partition_outbox;
use fsm_store::schedules::{self, ScheduleRow};
use fsm_store::tx::Tx;

use super::declaring::{self, RENEWED_EVERY};
use super::{EventToSend, Planned};
use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::failing::longest;
use crate::handle::send::SendRequest;
use crate::preference::Turn;
use crate::redact::Redactable;

/// The maximum number of moments of one schedule that one scan sends. The others follow in the next scan, after those of other schedules.
const AT_A_TIME: usize = 100;
/// The longest time between two scans, so that the schedules stay declared.
const LONGEST_WAIT: Duration = RENEWED_EVERY;

/// The result of one scan of the schedules.
#[derive(Default)]
struct ScanResult {
    /// The number of steps.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only a test bed waits until nothing is left"))]
    steps: usize,
    /// The time of the next scan, if it is known.
    next: Option<Timestamp>,
}

/// A moment that is sent, or an operator's request.
#[derive(Clone, Copy)]
enum Sending {
    Moment { from: Timestamp, step: Step },
    Request(Timestamp),
}

/// The outcome of a step.
enum Ended {
    /// It is written, and the schedule has this next moment.
    Written(Option<Timestamp>),
    /// Another process has moved, changed or paused the schedule.
    ConcurrentChange,
}

impl Sending {
    /// The moment of the event; `None` if none is sent.
    fn moment(self) -> Option<Timestamp> {
        match self {
            Sending::Moment { step, .. } => step.send,
            Sending::Request(at) => Some(at),
        }
    }

    fn is_request(self) -> bool {
        matches!(self, Sending::Request(_))
    }
}

impl Engine {
    /// Scans whenever a schedule comes due, and at least at every poll interval.
    pub(crate) async fn schedule_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        while self.may_start() {
            let result = self.look_at_schedules().await.unwrap_or_else(|error| {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the schedules cannot be read, and this is tried again");
                }
                ScanResult::default()
            });
            let poll = work.preference.poll(Turn::Schedules);
            let wait = result.next.and_then(|next| self.clock.until(next)).unwrap_or(poll);
            tokio::time::sleep(wait.min(poll).min(LONGEST_WAIT)).await;
        }
    }

    /// Sends all that is due and returns the number of steps.
    #[cfg(feature = "testing")]
    pub(crate) async fn send_scheduled(self: &Arc<Self>) -> Result<usize, Error> {
        if !self.may_start() {
            return Ok(0);
        }
        Ok(self.look_at_schedules().await?.steps)
    }

    /// The time at which the next schedule of this process is due.
    #[cfg(feature = "testing")]
    pub(crate) async fn next_scheduled(&self) -> Result<Option<Timestamp>, Error> {
        let Some(work) = self.work.as_ref().filter(|work| !work.schedules.is_empty()) else { return Ok(None) };
        let rows = schedules::all(&mut self.engine_reader().await?.conn()).await?;
        let of = |planned: &Planned| rows.iter().find(|row| *row.name == *planned.name && !row.paused)?.next_at;
        Ok(work.schedules.iter().filter_map(of).min())
    }

    async fn look_at_schedules(self: &Arc<Self>) -> Result<ScanResult, Error> {
        let Some(work) = self.work.as_ref().filter(|work| !work.schedules.is_empty()) else { return Ok(ScanResult::default()) };
        let rows = schedules::all(&mut self.engine_reader().await?.conn()).await?;
        let mut result = ScanResult::default();
        for planned in &work.schedules {
            let (name, now, failing) = (&planned.name, self.clock.now(), &work.failures.schedules);
            if failing.waiting(now).contains(name) {
                result.next = [result.next, failing.next()].into_iter().flatten().min();
                continue;
            }
            let row = rows.iter().find(|row| *row.name == **name);
            match self.look_at(planned, row, now).await {
                Ok((steps, next)) => {
                    failing.passed(Arc::clone(name));
                    result.steps += steps;
                    result.next = [result.next, next].into_iter().flatten().min();
                }
                Err(error) if error.is_stopping() => return Ok(result),
                Err(error) => {
                    let again = failing.failed(Arc::clone(name), now, longest(&error));
                    if again.is_logged() && !self.outage.reports(&error) {
                        tracing::warn!(schedule = &**name, tries = again.tries, %error, again_in = ?again.wait, "a schedule cannot send; the others do");
                    }
                    result.next = [result.next, failing.next()].into_iter().flatten().min();
                }
            }
        }
        Ok(result)
    }

    /// Sends what is due of one schedule. Returns the number of steps and the time of the next one.
    async fn look_at(
        self: &Arc<Self>,
        planned: &Planned,
        row: Option<&ScheduleRow>,
        now: Timestamp,
    ) -> Result<(usize, Option<Timestamp>), Error> {
        let Some(row) = row else {
            declaring::declare(&self.store, planned, now, now).await?;
            return Ok((1, Some(now)));
        };
        if row.definition != planned.definition() {
            if declaring::is_declared(row, now) {
                return Ok((0, None));
            }
            // Nobody declares the other definition any more: this one goes on from where that one ended.
            declaring::declare(&self.store, planned, now, row.declared_at).await?;
            return Ok((1, Some(now)));
        }
        if now.since(row.declared_at) >= RENEWED_EVERY {
            let mut tx = self.store.begin().await?;
            schedules::declared(&mut tx.conn(), &row.name, now).await?;
            tx.commit().await?;
        }
        let mut steps = 0;
        if let Some(at) = row.requested_at {
            self.send_one(planned, Sending::Request(at)).await?;
            steps += 1;
        }
        let mut next_at = row.next_at.filter(|_| !row.paused);
        while let Some(from) = next_at.filter(|_| steps < AT_A_TIME) {
            let Some(step) = step(from, now, planned.missed, |from| planned.calendar.after(from)) else { break };
            steps += 1;
            match self.send_one(planned, Sending::Moment { from, step }).await? {
                Ended::Written(next) => next_at = next,
                Ended::ConcurrentChange => return Ok((steps, Some(now))),
            }
        }
        Ok((steps, next_at))
    }

    /// Sends one moment, or records why it cannot be sent. An error means that this should be tried again later.
    async fn send_one(self: &Arc<Self>, planned: &Planned, sending: Sending) -> Result<Ended, Error> {
        let Some(at) = sending.moment() else { return self.write_one(planned, sending, None).await };
        let event = planned.event(at, sending.is_request(), self.limits.payload);
        let why = match event {
            Ok(event) => match self.write_one(planned, sending, Some(Ok(&event))).await {
                Err(error) if is_final(&error) => error,
                ended => return ended,
            },
            Err(why) => why,
        };
        let text = self.data_protection.redaction.of(Redactable::error(planned.machine, &planned.name, &why.to_string())).into_owned();
        tracing::warn!(schedule = &*planned.name, moment = %at, error = text, "a moment of a schedule is not sent; the next one is");
        let stored = self.stored_reason(&text);
        self.write_one(planned, sending, Some(Err(stored))).await
    }

    /// The reason for a failed moment, as the row of the schedule has it. A codec encrypts what belongs to an instance, and this row belongs to none.
    pub(crate) fn stored_reason<'t>(&self, text: &'t str) -> &'t str {
        if self.data_protection.codec.is_some() { "the log of the worker says why" } else { text }
    }

    /// Writes a step in one transaction: the schedule moves on, and its event is sent or the reason is recorded why not.
    async fn write_one(
        self: &Arc<Self>,
        planned: &Planned,
        sending: Sending,
        event: Option<Result<&EventToSend, &str>>,
    ) -> Result<Ended, Error> {
        let (name, definition) = (&*planned.name, planned.definition());
        // Asked before the transaction, which would otherwise wait for a second connection.
        self.store.may_begin_calls().await?;
        let mut tx = self.store.begin().await?;
        let (is_moved, next) = match sending {
            Sending::Moment { from, step } => (schedules::advance(&mut tx.conn(), name, &definition, from, step.next).await?, step.next),
            Sending::Request(at) => (schedules::take(&mut tx.conn(), name, &definition, at).await?, None),
        };
        if !is_moved {
            tx.rollback().await?;
            return Ok(Ended::ConcurrentChange);
        }
        match (sending.moment(), event) {
            (Some(at), Some(Ok(event))) => {
                if let Err(error) = self.send_event(&mut tx, planned, event, at, sending.is_request()).await {
                    tx.rollback().await?;
                    return Err(error);
                }
                schedules::sent(&mut tx.conn(), name, at, &event.key).await?;
            }
            (Some(at), Some(Err(why))) => schedules::failed(&mut tx.conn(), name, at, why).await?,
            _ => tracing::info!(schedule = name, "missed moments of a schedule are not sent, as its declaration says"),
        }
        tx.commit().await?;
        if let (Some(at), Some(Ok(event))) = (sending.moment(), event) {
            tracing::debug!(schedule = name, moment = %at, machine = planned.machine, key = event.key, "a schedule sent its event");
            let now = self.clock.now();
            self.wake_up.due(now);
            self.has_event_elsewhere.notify_one();
            self.notify(now);
        }
        Ok(Ended::Written(next))
    }

    /// Sends the event in the transaction. The moment is its dedup id, so that no other way to repeat it has an effect.
    async fn send_event(
        self: &Arc<Self>,
        tx: &mut Tx,
        planned: &Planned,
        event: &EventToSend,
        at: Timestamp,
        is_request: bool,
    ) -> Result<(), Error> {
        let kind = if is_request { "request" } else { "moment" };
        let dedup = format!("schedule {} {kind} {at}", planned.name);
        if let Some(partition) = self.partition.and_then(|here| here.elsewhere(&event.key)) {
            return self.send_to_partition_outbox(tx, planned, event, (partition, call_of(&dedup, at), at)).await;
        }
        let request = SendRequest::new(Arc::clone(self), None, planned.machine, &event.key, event.event, Ok(event.payload.clone()));
        match request.dedup(dedup).in_transaction(tx.conn()).await {
            // The same moment was sent before, with other content.
            Err(error) if error.is_conflict() => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Adds the event with this id of its call to the outbox of this partition, in the transaction that moves the schedule on.
    async fn send_to_partition_outbox(
        &self,
        tx: &mut Tx,
        planned: &Planned,
        event: &EventToSend,
        (partition, id, at): (u32, CallId, Timestamp),
    ) -> Result<(), Error> {
        let owner = Owner { machine: planned.machine, key: &event.key };
        let payload = self.data_protection.encrypt(&owner.payload(id), event.payload.clone());
        let payload =
            payload.map_err(|why| Error::other(ErrorKind::Codec, format!("the event `{}` cannot be stored: {why}", event.event)))?;
        let outgoing = Outgoing::new(id, planned.machine, &event.key, Event { name: event.event.to_owned(), payload });
        let moment = (&*planned.name, at);
        partition_outbox::put_scheduled(&mut tx.conn(), (partition, &outgoing), moment, self.clock.now()).await?;
        Ok(())
    }
}

/// The id of the call of a moment. It is the same each time, so that another partition takes the moment once.
fn call_of(dedup: &str, at: Timestamp) -> CallId {
    let [_, _, _, _, _, _, random @ ..] = fnv1a_128(dedup.bytes()).to_be_bytes();
    let millis = u64::try_from(at.as_micros() / 1000).unwrap_or(0);
    CallId(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
}

/// True if the same event would fail again: it is refused, or it cannot be stored.
fn is_final(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Busy | ErrorKind::Contended | ErrorKind::Stopping | ErrorKind::Internal => false,
        ErrorKind::Database => !error.may_pass(),
        _ => true,
    }
}
