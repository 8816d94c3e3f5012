//! The delivery of the events that one instance of another partition is to get: the protocol of one claim, without IO.
//!
//! A process claims the line of a receiver, sends its events one after the other, and finishes the claim. A caller of [`Delivery`] does
//! the reads, the sends and the writes, and tells it each answer.

use std::time::Duration;

use super::family_notice::{ChildReport, ChildStart, FamilyNotice};
use super::rows::SenderNote;
use crate::changes::NoteKind;
use crate::decide::outbox::backoff;
use crate::decide::refusal::Refusal;
use crate::decide::send::{Dedup, Send};
use crate::ids::{CallId, InstanceId};
use crate::outcome::Event;
use crate::priority::Priority;
use crate::time::Timestamp;

/// The longest duration of a claim. A process that dies keeps its events from others until its claim ends.
pub const LONGEST_CLAIM: Duration = Duration::from_secs(60);
/// No further event is sent under a claim that has lasted this long. The claim lasts for the patience of one send longer.
const SENDS: Duration = Duration::from_secs(5);

/// An event for an instance of another partition.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingEvent {
    /// The number of its row.
    pub number: i64,
    /// The id of the call that it becomes.
    pub call: CallId,
    /// The event.
    pub event: Event,
    /// The instance whose verb sent it.
    pub sender: InstanceId,
    /// The time of the next delivery.
    pub due_at: Timestamp,
    /// The number of deliveries in a row that failed.
    pub tries: u32,
    /// The priority of the call.
    pub priority: Priority,
    /// The notice, if the row is one between a parent and a child.
    pub notice: Option<FamilyNotice>,
}

/// The events for one receiver that one process delivers now. It has them until the claim ends.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedLine {
    /// The receiver's machine.
    pub machine: String,
    /// The receiver's key.
    pub key: String,
    /// The events, in order. There is at least one.
    pub events: Vec<WaitingEvent>,
    /// The end of the claim.
    pub until: Timestamp,
}

/// The next delivery of what is left of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again {
    /// The time of the next delivery.
    pub due_at: Timestamp,
    /// The number of deliveries in a row that failed.
    pub tries: u32,
}

/// The answer to the send of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendAnswer {
    /// The receiver has taken the event, now or before.
    Taken,
    /// The receiver refuses the event, with this reason. It is not sent again.
    Refused(String),
    /// The parent was told that the child completed, and no longer waits for it, for this reason.
    Unawaited(String),
    /// There is no answer, or the receiver has no room. The event is sent again later.
    Failed,
    /// This process shuts down. Another one sends the event at once.
    Stopping,
}

/// Why the rest of a line is not delivered under this claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoppedBy {
    Failure,
    Shutdown,
    /// Code that has the event delivers it, and all events behind it.
    UnknownEvent,
}

/// The changes that end a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The events that leave the outbox, because they were taken or refused.
    pub delivered: Vec<CallId>,
    /// The notes in the histories of the senders of refused events.
    pub notes: Vec<SenderNote>,
    /// The next delivery of the other events.
    pub again: Again,
    /// The children that could not be started.
    pub not_started: Vec<ChildReport>,
}

/// The end of a claim that begins at `now`. `patience` is the longest wait for the answer to one send.
pub fn claim_until(now: Timestamp, patience: Duration) -> Timestamp {
    now + patience.saturating_add(SENDS).min(LONGEST_CLAIM)
}

/// The delivery of one claimed line.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    line: ClaimedLine,
    delivered: usize,
    notes: Vec<SenderNote>,
    not_started: Vec<(ChildStart, InstanceId)>,
    stopped_by: Option<StoppedBy>,
}

impl Delivery {
    /// The delivery of a line that was just claimed.
    pub fn new(line: ClaimedLine) -> Delivery {
        Delivery { line, delivered: 0, notes: Vec::new(), not_started: Vec::new(), stopped_by: None }
    }

    /// The line.
    pub fn line(&self) -> &ClaimedLine {
        &self.line
    }

    /// The event that is sent next, or `None` if the claim is to be finished. The claim has lasted for `lasted`.
    pub fn next(&mut self, lasted: Duration, is_known: impl FnOnce(&str) -> bool) -> Option<&WaitingEvent> {
        // A refusal is in the history before the next event is sent. Otherwise another process could send the refused event again, after
        // later ones, and it could be taken then.
        let has_refusal = self.notes.iter().any(|note| note.kind == NoteKind::Rejected);
        let is_over = self.stopped_by.is_some() || has_refusal || (self.delivered > 0 && lasted >= SENDS);
        let event = self.line.events.get(self.delivered).filter(|_| !is_over)?;
        let is_of_the_engine = matches!(event.notice, Some(FamilyNotice::Cancel { .. } | FamilyNotice::Report(_)));
        if !is_of_the_engine && !is_known(&event.event.name) {
            self.stopped_by = Some(StoppedBy::UnknownEvent);
            return None;
        }
        Some(event)
    }

    /// Records the answer to the event that was sent last.
    pub fn answered(&mut self, answer: SendAnswer) {
        let Some(event) = self.line.events.get(self.delivered) else { return };
        match answer {
            SendAnswer::Taken => self.delivered += 1,
            SendAnswer::Refused(detail) => {
                let detail = match &event.notice {
                    Some(FamilyNotice::Start(start)) => {
                        self.not_started.push((start.clone(), event.sender));
                        format!("the child is not started: {detail}")
                    }
                    _ => detail,
                };
                self.notes.push(SenderNote { sender: event.sender, kind: NoteKind::Rejected, call: event.call, detail });
                self.delivered += 1;
            }
            SendAnswer::Unawaited(detail) => {
                self.notes.push(SenderNote { sender: event.sender, kind: NoteKind::Unawaited, call: event.call, detail });
                self.delivered += 1;
            }
            SendAnswer::Failed => self.stopped_by = Some(StoppedBy::Failure),
            SendAnswer::Stopping => self.stopped_by = Some(StoppedBy::Shutdown),
        }
    }

    /// The parents of the children that could not be started.
    pub fn not_started(&self) -> impl Iterator<Item = InstanceId> {
        self.not_started.iter().map(|(_, parent)| *parent)
    }

    /// The changes that end the claim at `now`.
    pub fn finish(&self, now: Timestamp) -> Finish {
        let delivered = self.line.events[..self.delivered].iter().map(|event| event.call).collect();
        let ClaimedLine { machine, key, .. } = &self.line;
        let not_started = self.not_started.iter().map(|(start, parent)| ChildReport::not_started(start, *parent, machine, key, now));
        Finish { delivered, notes: self.notes.clone(), again: self.again(now), not_started: not_started.collect() }
    }

    fn again(&self, now: Timestamp) -> Again {
        let before = self.line.events.first().map_or(0, |first| first.tries);
        let tries = if self.delivered == 0 { before.saturating_add(1) } else { 0 };
        match self.stopped_by {
            None => Again { due_at: now, tries: 0 },
            Some(StoppedBy::Shutdown) => Again { due_at: now, tries: tries.saturating_sub(1) },
            Some(StoppedBy::Failure | StoppedBy::UnknownEvent) => Again { due_at: now + backoff(tries), tries },
        }
    }

    /// The wait before the end of the claim is written again at `now`, after `tries` writes that failed. `None` if the claim has ended: the
    /// next claim sends the events again.
    pub fn finish_again(&self, tries: u32, now: Timestamp) -> Option<Duration> {
        (now < self.line.until).then(|| backoff(tries))
    }
}

impl From<&Refusal> for SendAnswer {
    fn from(refusal: &Refusal) -> SendAnswer {
        match refusal {
            // It was sent before, and its event has another name since a mapping renamed it: the id of the call identifies the content.
            Refusal::Conflict { .. } => SendAnswer::Taken,
            Refusal::Busy { .. } => SendAnswer::Failed,
            Refusal::Unfit(_) | Refusal::NotAllowed { .. } => SendAnswer::Refused(refusal.to_string()),
        }
    }
}

impl WaitingEvent {
    /// The request that sends the event. Its deduplication id belongs to the call, so that an event that is sent again is taken once.
    pub fn send(&self, inbox_limit: u64) -> Send {
        // The control character keeps this id apart from the dedup ids of senders.
        let dedup = Some(Dedup { id: format!("\u{2}{}", self.call), digests: vec![self.call.0.as_bytes().to_vec()] });
        Send { dedup, priority: self.priority, ..Send::new(self.call, self.event.clone(), inbox_limit) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use crate::instance::Status;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn event(number: i64, tries: u32) -> WaitingEvent {
        let call = CallId(Uuid::from_u128(number as u128));
        let event = Event { name: format!("E{number}"), payload: Vec::new() };
        WaitingEvent { number, call, event, sender: InstanceId(Uuid::nil()), due_at: NOW, tries, priority: Priority::Normal, notice: None }
    }

    fn delivery(tries: u32) -> Delivery {
        let events = (1..=3).map(|number| event(number, tries)).collect();
        Delivery::new(ClaimedLine { machine: "m".into(), key: "k".into(), events, until: NOW + Duration::from_secs(15) })
    }

    /// Gives one answer after the other, and returns the names of the events that were sent.
    fn sent(delivery: &mut Delivery, answers: impl IntoIterator<Item = SendAnswer>) -> Vec<String> {
        let mut sent = Vec::new();
        for answer in answers {
            let Some(event) = delivery.next(Duration::ZERO, |_| true) else { break };
            sent.push(event.event.name.clone());
            delivery.answered(answer);
        }
        sent
    }

    #[test]
    fn a_claim_lasts_for_the_sends_and_one_wait_and_at_most_a_minute() {
        let lasts = [0, 10, 100].map(|patience| claim_until(NOW, Duration::from_secs(patience)).since(NOW).as_secs());
        assert_eq!(lasts, [5, 15, 60]);
    }

    #[test]
    fn all_events_are_sent_in_their_order_and_leave_the_outbox() {
        let mut delivery = delivery(4);
        assert_eq!(sent(&mut delivery, [SendAnswer::Taken, SendAnswer::Taken, SendAnswer::Taken]), ["E1", "E2", "E3"]);
        assert_eq!(delivery.next(Duration::ZERO, |_| true), None);
        let finish = delivery.finish(NOW);
        assert_eq!((finish.delivered.len(), finish.notes.len(), finish.again), (3, 0, Again { due_at: NOW, tries: 0 }));
    }

    #[test]
    fn a_failure_stops_the_line_and_doubles_the_wait_unless_an_event_was_taken_before() {
        let mut none = delivery(1);
        assert_eq!(sent(&mut none, [SendAnswer::Failed, SendAnswer::Taken]), ["E1"]);
        assert_eq!(none.finish(NOW).again, Again { due_at: NOW + backoff(2), tries: 2 });
        let mut some = delivery(1);
        assert_eq!(sent(&mut some, [SendAnswer::Taken, SendAnswer::Failed, SendAnswer::Taken]), ["E1", "E2"]);
        assert_eq!(
            some.finish(NOW),
            Finish {
                delivered: vec![event(1, 0).call],
                notes: Vec::new(),
                again: Again { due_at: NOW + backoff(0), tries: 0 },
                not_started: Vec::new()
            }
        );
    }

    #[test]
    fn a_shutdown_leaves_the_rest_to_others_at_once() {
        let mut delivery = delivery(3);
        assert_eq!(sent(&mut delivery, [SendAnswer::Stopping, SendAnswer::Taken]), ["E1"]);
        assert_eq!(delivery.finish(NOW).again, Again { due_at: NOW, tries: 3 });
    }

    #[test]
    fn a_refusal_is_noted_before_the_next_event_is_sent() {
        let mut delivery = delivery(0);
        assert_eq!(sent(&mut delivery, [SendAnswer::Taken, SendAnswer::Refused("no".into()), SendAnswer::Taken]), ["E1", "E2"]);
        let finish = delivery.finish(NOW);
        let noted: Vec<_> = finish.notes.iter().map(|note| (note.call, note.detail.as_str())).collect();
        assert_eq!((noted, finish.delivered.len()), (vec![(event(2, 0).call, "no")], 2));
        assert_eq!(finish.again, Again { due_at: NOW, tries: 0 });
    }

    #[test]
    fn no_event_is_sent_after_the_time_for_sends_except_the_first() {
        let mut delivery = delivery(0);
        assert!(delivery.next(Duration::from_secs(9), |_| true).is_some());
        delivery.answered(SendAnswer::Taken);
        assert_eq!(delivery.next(Duration::from_secs(5), |_| true), None);
        assert!(delivery.next(Duration::from_millis(4_999), |_| true).is_some());
    }

    #[test]
    fn an_event_that_this_code_lacks_stops_the_line() {
        let mut delivery = delivery(0);
        assert!(delivery.next(Duration::ZERO, |name| name == "E1").is_some());
        delivery.answered(SendAnswer::Taken);
        assert_eq!(delivery.next(Duration::ZERO, |name| name == "E1"), None);
        assert_eq!(delivery.next(Duration::ZERO, |_| true), None, "it stays stopped");
        assert_eq!(delivery.finish(NOW).again, Again { due_at: NOW + backoff(0), tries: 0 });
    }

    fn of_a_child(number: i64, notice: FamilyNotice) -> Delivery {
        let events = vec![WaitingEvent { notice: Some(notice), ..event(number, 0) }, event(number + 1, 0)];
        Delivery::new(ClaimedLine { machine: "m".into(), key: "k".into(), events, until: NOW + Duration::from_secs(15) })
    }

    #[test]
    fn a_child_that_cannot_be_started_is_reported_as_cancelled_and_its_parent_has_a_note() {
        let (parent_machine, parent_key) = ("order".to_owned(), "o-1".to_owned());
        let start = ChildStart { group: 3, parent_machine, parent_key, is_detached: false, failure_event: None };
        let mut delivery = of_a_child(1, FamilyNotice::Start(start));
        assert_eq!(sent(&mut delivery, [SendAnswer::Refused("the key is taken".into()), SendAnswer::Taken]), ["E1"]);
        let finish = delivery.finish(NOW);
        assert_eq!(finish.notes[0].detail, "the child is not started: the key is taken");
        let reported: Vec<_> =
            finish.not_started.iter().map(|report| (report.group, &*report.machine, &*report.key, report.status, &report.state)).collect();
        assert_eq!(reported, [(3, "m", "k", Status::Cancelled, &None)]);
        assert_eq!(finish.delivered, [event(1, 0).call], "the start leaves the outbox in the same commit");
    }

    #[test]
    fn a_notice_needs_no_code_that_has_its_event_and_an_unawaited_end_holds_nothing_back() {
        let mut delivery = of_a_child(1, FamilyNotice::Cancel { group: 3, reason: String::new() });
        assert!(delivery.next(Duration::ZERO, |_| false).is_some());
        delivery.answered(SendAnswer::Unawaited("its parent had ended before".into()));
        assert!(delivery.next(Duration::ZERO, |_| true).is_some());
        let finish = delivery.finish(NOW);
        assert_eq!((finish.notes[0].kind, finish.not_started.len()), (NoteKind::Unawaited, 0));
    }

    #[test]
    fn the_end_of_a_claim_is_written_again_until_the_claim_ends() {
        let delivery = delivery(0);
        assert_eq!(delivery.finish_again(2, NOW), Some(backoff(2)));
        assert_eq!(delivery.finish_again(2, NOW + Duration::from_secs(15)), None);
    }

    #[test]
    fn a_used_deduplication_id_means_that_the_event_was_taken_and_a_full_inbox_is_no_refusal() {
        let (whose, dedup, why) = (String::new(), String::new(), String::new());
        assert_eq!(SendAnswer::from(&Refusal::Conflict { whose: whose.clone(), dedup }), SendAnswer::Taken);
        assert_eq!(SendAnswer::from(&Refusal::Busy { whose: whose.clone(), why: why.clone() }), SendAnswer::Failed);
        let refusal = Refusal::NotAllowed { whose, asked: "paused", why };
        assert_eq!(SendAnswer::from(&refusal), SendAnswer::Refused(refusal.to_string()));
    }

    #[test]
    fn an_event_has_the_same_deduplication_id_each_time() {
        let (first, again) = (event(7, 0).send(1), event(7, 5).send(1));
        assert_eq!(first, again);
        assert_eq!(first.dedup.map(|dedup| dedup.id), Some("\u{2}00000000-0000-0000-0000-000000000007".to_owned()));
    }
}
