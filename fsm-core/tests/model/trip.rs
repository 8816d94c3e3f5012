//! The commit of a batch, mirroring `committer/trip.rs`: read under locks, decide with the real decisions, write.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Note, NoteKind};
use fsm_core::decide::complete::complete;
use fsm_core::decide::fire::{fire, rejected};
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::operate::operate;
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::room::{Delivery, no_room};
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Outgoing, Problem};
use fsm_core::retry::RetryAdvice;
use fsm_core::time::Timestamp;

use super::Model;
use super::door::Written;
use super::promise::Broken;
use super::queue::{Board, Decided, KEYS, Origin, Reply, Report, Request, RequestKind, Seen, Trip, Way, key_index};
use super::variant::Variant;

/// The maximum number of events in an inbox.
pub const INBOX: u64 = 4;
/// The reason why a decision under locks is never `NeedsMoreRows`.
const ALL: &str = "all of the inbox was read";

/// The outcome of one request after its transaction was committed.
pub struct Verdict {
    /// The answer; `None` if another process committed first and the request must be decided again.
    pub reply: Option<Reply>,
    /// The attempts that this process runs now.
    pub runs: Vec<Run>,
    /// True if the changes are in the database.
    pub has_written: bool,
    /// The snapshot that the commit left, if its row version is known.
    pub left: Option<Seen>,
    /// The changes that a broken engine writes later, in a second transaction.
    pub half: Option<Changes>,
}

/// An attempt that starts.
pub struct Run {
    pub attempt: Attempt,
    pub grant: u64,
}

impl Verdict {
    /// An outcome without consequences.
    pub fn of(reply: Reply) -> Verdict {
        Verdict { reply: Some(reply), runs: Vec::new(), has_written: false, left: None, half: None }
    }
}

impl Model {
    /// `Board::read` and `Trip::decide`.
    pub fn set_out(&mut self, batch: Vec<Request>, now: Timestamp, grant: Option<fsm_core::ids::SessionId>) -> Trip {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let exists = |key: &usize| self.store.instance(KEYS[*key]).is_some();
        let locks = (0..KEYS.len()).filter(|key| touches & (1 << key) != 0).filter(exists).fold(0, |locks, key| locks | (1 << key));
        let mut board = Board { standings: Default::default(), known: Vec::new() };
        for key in (0..KEYS.len()).filter(|key| touches & (1 << key) != 0) {
            let request = batch.iter().find(|request| request.key == key);
            let seen = self.store.see(KEYS[key]);
            let mut snapshot = self.snapshot(key, seen, now);
            self.read_rest(&mut snapshot, request);
            board.standings[key] = Some(snapshot);
        }
        for request in batch.iter().filter(|request| request.tries > 0 && self.variant != Variant::RepeatWithoutLooking) {
            if let RequestKind::Send(send) = &request.kind {
                board.known.extend(self.store.known(send.id).map(|outcome| (send.id, outcome)));
            }
        }
        let mut trip = Trip { now, grant, batch, decided: Vec::new(), board, touches, locks, way: Way::Locked };
        let decide = |n: usize| self.decide(&trip, &trip.batch[n]).expect(ALL);
        trip.decided = (0..trip.batch.len()).map(decide).collect();
        trip
    }

    pub fn decide(&mut self, trip: &Trip, request: &Request) -> Result<Decided, NeedsMoreRows> {
        let snapshot = trip.snapshot(request.key).clone();
        Ok(match &request.kind {
            RequestKind::Send(send) => self.decide_send(trip, request.key, send.clone())?,
            RequestKind::Complete(report) => self.decide_complete(trip, request, report)?,
            RequestKind::Fire(timer) => {
                let moment = self.moment(trip);
                let firing = |model: &Model, snapshot: &InstanceSnapshot| fire(&model.machine, snapshot, (**timer).clone(), moment);
                let changes = self.read_on(trip, snapshot, firing)?;
                Decided::of(Reply::Done, Some(changes))
            }
            RequestKind::Operate(_) if snapshot.is_new => Decided::of(Reply::Refused, None),
            RequestKind::Operate(operation) => {
                let moment = DecisionContext { grant: None, ..self.moment(trip) };
                let operating =
                    |model: &Model, snapshot: &InstanceSnapshot| operate(&model.machine, snapshot, (**operation).clone(), moment);
                match self.read_on(trip, snapshot, operating)? {
                    Ok(changes) => Decided::of(Reply::Done, changes),
                    Err(_) => Decided::of(Reply::Refused, None),
                }
            }
        })
    }

    fn decide_send(&mut self, trip: &Trip, key: usize, request: Send) -> Result<Decided, NeedsMoreRows> {
        if let Some((call, outcome)) = trip.board.known.iter().find(|(call, _)| *call == request.id) {
            return Ok(Decided::of(Reply::Sent { call: *call, outcome: *outcome }, None));
        }
        let moment = self.moment(trip);
        let sending = |model: &Model, snapshot: &InstanceSnapshot| send(&model.machine, snapshot, request.clone(), moment);
        Ok(match self.read_on(trip, trip.snapshot(key).clone(), sending)? {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                Decided::of(reply, accepted.changes)
            }
            Err(_) => Decided::of(Reply::Refused, None),
        })
    }

    fn decide_complete(&mut self, trip: &Trip, request: &Request, report: &Report) -> Result<Decided, NeedsMoreRows> {
        let snapshot = trip.snapshot(request.key);
        let instance = &snapshot.instance;
        let mut attempt = report.attempt.clone();
        if let (Variant::GuardWithoutSession | Variant::LateReportById, Some(newest)) = (self.variant, instance.newest) {
            let row = self.store.attempt(newest).filter(|row| row.call == attempt.call);
            let is_taken = |row: &&Attempt| self.variant == Variant::LateReportById || row.worker.is_some() && row.finished_at.is_none();
            attempt = row.filter(is_taken).cloned().unwrap_or(attempt);
        }
        let is_newest = instance.newest == Some((attempt.call, attempt.number));
        let is_blind =
            self.variant == Variant::LateReportById || (self.variant == Variant::SweepWithoutLooking && report.origin == Origin::Sweeper);
        if snapshot.is_new || !is_newest || (!instance.is_open && !is_blind) {
            return Ok(Decided::of(Reply::Completed { counted: false }, late(snapshot, request, report, trip.now)));
        }
        let moment = self.moment(trip);
        let completing =
            |model: &Model, snapshot: &InstanceSnapshot| complete(&model.machine, snapshot, &attempt, report.outcome.clone(), moment);
        let mut changes = self.read_on(trip, snapshot.clone(), completing)?;
        if let (true, Some(close)) = (self.variant == Variant::LateReportById, &mut changes.close) {
            close.expected = attempt.state;
        }
        if let (Variant::SnoozeUsesARetry, Outcome::Snoozed { .. }, Some(open)) = (self.variant, &report.outcome, &mut changes.open) {
            let retry_state = &mut std::sync::Arc::make_mut(&mut open.attempt).retry_state;
            retry_state.remaining = retry_state.remaining.map(|left| left.saturating_sub(1));
        }
        if self.variant != Variant::FullInboxDrops
            && let Some(refusal) = self.no_room(trip, report, &changes, moment)
        {
            let failure = Outcome::Failure(Problem::new(&refusal.to_string(), RetryAdvice::Default));
            changes = complete(&self.machine, snapshot, &attempt, failure, moment)?;
            return Ok(Decided { has_room: false, ..Decided::of(Reply::Completed { counted: true }, Some(changes)) });
        }
        Ok(Decided::of(Reply::Completed { counted: true }, Some(changes)))
    }

    /// `Trip::no_room`.
    fn no_room(&self, trip: &Trip, report: &Report, changes: &Changes, moment: DecisionContext) -> Option<Refusal> {
        let deliveries = report.outcome.sends().iter().map(|outgoing| {
            let mut receiver = trip.snapshot(key_index(&outgoing.key)).clone();
            receiver.inbox.first = self.store.waiting(receiver.instance.id);
            if receiver.instance.id == changes.instance.id {
                receiver.apply(changes.clone());
            }
            Delivery { machine: &self.machine, receiver, send: delivery(outgoing) }
        });
        no_room(deliveries, DecisionContext { grant: None, ..moment }).expect(ALL)
    }

    /// Decides under locks. If the decision needs more of the inbox, it gets all of it.
    fn read_on<T>(
        &self,
        trip: &Trip,
        mut snapshot: InstanceSnapshot,
        decide: impl Fn(&Model, &InstanceSnapshot) -> Result<T, NeedsMoreRows>,
    ) -> Result<T, NeedsMoreRows> {
        decide(self, &snapshot).or_else(|NeedsMoreRows| match trip.way {
            Way::AtOnce(_) | Way::Ahead(_) => Err(NeedsMoreRows),
            Way::Locked => {
                snapshot.inbox.first = self.store.waiting(snapshot.instance.id);
                decide(self, &snapshot)
            }
        })
    }

    fn moment(&mut self, trip: &Trip) -> DecisionContext {
        DecisionContext { now: trip.now, grant: trip.grant, fresh: CallId(self.fresh()) }
    }

    /// `Trip::write` and `Trip::send_outgoing`: the transaction commits. `None` when all of it was rolled back, to be decided again.
    pub fn commit(&mut self, trip: &mut Trip) -> Result<Option<Vec<Verdict>>, Broken> {
        let has_outgoing = trip.batch.iter().any(|request| request.touches() != 1 << request.key);
        let before = has_outgoing.then(|| (self.store.clone(), self.ledger.clone()));
        self.store.commits += 1;
        let mut verdicts = Vec::new();
        let decided = std::mem::take(&mut trip.decided);
        let has_room: Vec<_> = decided.iter().map(|decided| decided.has_room).collect();
        // What a verb wrote in its own transaction must not be committed with its failure.
        if trip.batch.iter().zip(&has_room).any(|(request, has_room)| request.is_alone() && !has_room) {
            return Ok(None);
        }
        for (n, decided) in decided.into_iter().enumerate() {
            let request = trip.batch[n].clone();
            let verdict = match decided.reply {
                // If a verb with a transaction of its own reports too late, everything is rolled back, including the history entry of the
                // late report.
                Reply::Completed { counted: false } if request.is_alone() => Verdict::of(decided.reply),
                _ => self.write_one(trip, request.key, Some(&request), decided)?,
            };
            verdicts.push(verdict);
        }
        for (n, verdict) in verdicts.iter_mut().enumerate() {
            let RequestKind::Complete(report) = &trip.batch[n].kind else { continue };
            let Outcome::Success { verb_requests, .. } = &report.outcome else { continue };
            if verdict.reply != Some(Reply::Completed { counted: true }) || !has_room[n] {
                continue;
            }
            let (sender, sends) = (trip.batch[n].key, verb_requests.sends.clone());
            for outgoing in &sends {
                let (keeper, decided) = self.decide_outgoing(trip, sender, outgoing);
                let one = self.write_one(trip, keeper, None, decided)?;
                verdict.runs.extend(one.runs);
                if one.reply.is_none() {
                    (self.store, self.ledger) = before.expect("there is something outgoing");
                    return Ok(None);
                }
            }
            self.ledger.told.extend(sends.iter().map(|outgoing| outgoing.id));
        }
        self.is_dirty = true;
        Ok(Some(verdicts))
    }

    pub fn write_one(&mut self, trip: &mut Trip, key: usize, request: Option<&Request>, decided: Decided) -> Result<Verdict, Broken> {
        let mut verdict = Verdict::of(decided.reply);
        let Some(mut changes) = decided.changes else { return Ok(verdict) };
        let half = self.second_half(&mut changes);
        let held = changes.close.as_ref().and_then(|close| self.store.calls.get(&(close.call, close.number))).cloned();
        match self.store.write(&changes, trip.variant(self.variant))? {
            Written::Outdated => {
                verdict.reply = match decided.reply {
                    Reply::Completed { .. } => Some(Reply::Completed { counted: false }),
                    Reply::Done if matches!(request, Some(Request { kind: RequestKind::Fire(_), .. })) => Some(Reply::Done),
                    _ => None,
                };
            }
            Written::Done => {
                verdict.half = half;
                self.ledger.account(&self.store, &changes, held.as_ref(), request)?;
                trip.apply(key, &changes);
                verdict.has_written = true;
                if let Some(open) = changes.open.filter(|open| open.attempt.worker.is_some()) {
                    let grant = self.store.calls.get(&(open.attempt.call, open.attempt.number)).map_or(0, |row| row.grant);
                    verdict.runs.push(Run { attempt: Arc::unwrap_or_clone(open.attempt), grant });
                }
            }
        }
        Ok(verdict)
    }

    fn second_half(&self, changes: &mut Changes) -> Option<Changes> {
        let is_again = matches!((&changes.close, &changes.open), (Some(close), Some(open)) if close.call == open.attempt.call);
        if self.variant != Variant::RetryOutsideTheTransaction || !is_again {
            return None;
        }
        Some(Changes { open: changes.open.take(), ..Changes::of(changes.instance.clone()) })
    }

    fn decide_outgoing(&mut self, trip: &Trip, sender: usize, outgoing: &Outgoing) -> (usize, Decided) {
        let key = key_index(&outgoing.key);
        let moment = self.moment(trip);
        let sending = |model: &Model, snapshot: &InstanceSnapshot| send(&model.machine, snapshot, delivery(outgoing), moment);
        match self.read_on(trip, trip.snapshot(key).clone(), sending).expect(ALL) {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                (key, Decided::of(reply, accepted.changes))
            }
            Err(refusal) => {
                let keeper = if trip.snapshot(key).is_new { sender } else { key };
                let changes = rejected(Instance::clone(&trip.snapshot(keeper).instance), outgoing.id, &refusal, trip.now);
                (keeper, Decided::of(Reply::Completed { counted: false }, Some(changes)))
            }
        }
    }
}

/// `Trip::delivery`.
fn delivery(outgoing: &Outgoing) -> Send {
    let (event, deliver_at) = (outgoing.event.clone(), outgoing.deliver_at);
    Send { id: outgoing.id, event, dedup: None, deliver_at, reject_if_busy: false, inbox_limit: INBOX }
}

/// `Trip::late`.
fn late(snapshot: &InstanceSnapshot, request: &Request, report: &Report, now: Timestamp) -> Option<Changes> {
    let is_verbs_own = matches!(report.outcome, Outcome::Success { .. } | Outcome::Failure(_));
    if !is_verbs_own || request.tries > 0 || snapshot.is_new {
        return None;
    }
    let instance = Instance::clone(&snapshot.instance);
    let note = Note { instance: instance.id, at: now, kind: NoteKind::Late, call: Some(report.attempt.call), detail: None, actor: None };
    Some(Changes { notes: vec![note], ..Changes::of(instance) })
}
