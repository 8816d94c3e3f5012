//! The commit of a batch, mirroring `committer/trip.rs`: read under locks, decide with the real decisions, write.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Note, NoteKind};
use fsm_core::decide::fire::{fire, rejected};
use fsm_core::decide::inbox::Unread;
use fsm_core::decide::operate::operate;
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::room::{Delivery, no_room};
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::settle::settle;
use fsm_core::decide::{Moment, Standing};
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Outgoing, Problem};
use fsm_core::retry::RetryAdvice;
use fsm_core::time::Timestamp;

use super::Model;
use super::door::Written;
use super::promise::Broken;
use super::queue::{Board, Decided, KEYS, Origin, Reply, Report, Request, Seen, Trip, Way, What, key_index};
use super::variant::Variant;

/// The maximum number of events in an inbox.
pub const INBOX: u64 = 4;
/// The reason why a decision under locks is never `Unread`.
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
            let mut standing = self.standing(key, seen, now);
            self.read_rest(&mut standing, request);
            board.standings[key] = Some(standing);
        }
        for request in batch.iter().filter(|request| request.tries > 0 && self.variant != Variant::RepeatWithoutLooking) {
            if let What::Send(send) = &request.what {
                board.known.extend(self.store.known(send.id).map(|outcome| (send.id, outcome)));
            }
        }
        let mut trip = Trip { now, grant, batch, decided: Vec::new(), board, touches, locks, way: Way::Locked };
        let decide = |n: usize| self.decide(&trip, &trip.batch[n]).expect(ALL);
        trip.decided = (0..trip.batch.len()).map(decide).collect();
        trip
    }

    pub fn decide(&mut self, trip: &Trip, request: &Request) -> Result<Decided, Unread> {
        let standing = trip.standing(request.key).clone();
        Ok(match &request.what {
            What::Send(send) => self.decide_send(trip, request.key, send.clone())?,
            What::Settle(report) => self.decide_settle(trip, request, report)?,
            What::Fire(timer) => {
                let moment = self.moment(trip);
                let firing = |model: &Model, standing: &Standing| fire(&model.machine, standing, (**timer).clone(), moment);
                let changes = self.read_on(trip, standing, firing)?;
                Decided::of(Reply::Done, Some(changes))
            }
            What::Operate(_) if standing.is_new => Decided::of(Reply::Refused, None),
            What::Operate(operation) => {
                let moment = Moment { grant: None, ..self.moment(trip) };
                let operating = |model: &Model, standing: &Standing| operate(&model.machine, standing, (**operation).clone(), moment);
                match self.read_on(trip, standing, operating)? {
                    Ok(changes) => Decided::of(Reply::Done, changes),
                    Err(_) => Decided::of(Reply::Refused, None),
                }
            }
        })
    }

    fn decide_send(&mut self, trip: &Trip, key: usize, request: Send) -> Result<Decided, Unread> {
        if let Some((call, outcome)) = trip.board.known.iter().find(|(call, _)| *call == request.id) {
            return Ok(Decided::of(Reply::Sent { call: *call, outcome: *outcome }, None));
        }
        let moment = self.moment(trip);
        let sending = |model: &Model, standing: &Standing| send(&model.machine, standing, request.clone(), moment);
        Ok(match self.read_on(trip, trip.standing(key).clone(), sending)? {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                Decided::of(reply, accepted.changes)
            }
            Err(_) => Decided::of(Reply::Refused, None),
        })
    }

    fn decide_settle(&mut self, trip: &Trip, request: &Request, report: &Report) -> Result<Decided, Unread> {
        let standing = trip.standing(request.key);
        let instance = &standing.instance;
        let mut attempt = report.attempt.clone();
        if let (Variant::GuardWithoutSession | Variant::LateReportById, Some(newest)) = (self.variant, instance.newest) {
            let row = self.store.attempt(newest).filter(|row| row.call == attempt.call);
            let is_taken = |row: &&Attempt| self.variant == Variant::LateReportById || row.worker.is_some() && row.finished_at.is_none();
            attempt = row.filter(is_taken).cloned().unwrap_or(attempt);
        }
        let is_newest = instance.newest == Some((attempt.call, attempt.number));
        let is_blind =
            self.variant == Variant::LateReportById || (self.variant == Variant::SweepWithoutLooking && report.origin == Origin::Sweeper);
        if standing.is_new || !is_newest || (!instance.is_open && !is_blind) {
            return Ok(Decided::of(Reply::Settled { counted: false }, late(standing, request, report, trip.now)));
        }
        let moment = self.moment(trip);
        let settling = |model: &Model, standing: &Standing| settle(&model.machine, standing, &attempt, report.outcome.clone(), moment);
        let mut changes = self.read_on(trip, standing.clone(), settling)?;
        if let (true, Some(close)) = (self.variant == Variant::LateReportById, &mut changes.close) {
            close.expected = attempt.state;
        }
        if self.variant != Variant::FullInboxDrops
            && let Some(refusal) = self.no_room(trip, report, &changes, moment)
        {
            let failure = Outcome::Failure(Problem::new(&refusal.to_string(), RetryAdvice::Default));
            changes = settle(&self.machine, standing, &attempt, failure, moment)?;
            return Ok(Decided { has_room: false, ..Decided::of(Reply::Settled { counted: true }, Some(changes)) });
        }
        Ok(Decided::of(Reply::Settled { counted: true }, Some(changes)))
    }

    /// `Trip::no_room`.
    fn no_room(&self, trip: &Trip, report: &Report, changes: &Changes, moment: Moment) -> Option<Refusal> {
        let deliveries = report.outcome.sends().iter().map(|outgoing| {
            let mut receiver = trip.standing(key_index(&outgoing.key)).clone();
            receiver.inbox.first = self.store.waiting(receiver.instance.id);
            if receiver.instance.id == changes.instance.id {
                receiver.apply(changes.clone());
            }
            Delivery { machine: &self.machine, receiver, send: delivery(outgoing) }
        });
        no_room(deliveries, Moment { grant: None, ..moment }).expect(ALL)
    }

    /// Decides under locks. If the decision needs more of the inbox, it gets all of it.
    fn read_on<T>(
        &self,
        trip: &Trip,
        mut standing: Standing,
        decide: impl Fn(&Model, &Standing) -> Result<T, Unread>,
    ) -> Result<T, Unread> {
        decide(self, &standing).or_else(|Unread| match trip.way {
            Way::AtOnce(_) | Way::Ahead(_) => Err(Unread),
            Way::Locked => {
                standing.inbox.first = self.store.waiting(standing.instance.id);
                decide(self, &standing)
            }
        })
    }

    fn moment(&mut self, trip: &Trip) -> Moment {
        Moment { now: trip.now, grant: trip.grant, fresh: CallId(self.fresh()) }
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
                Reply::Settled { counted: false } if request.is_alone() => Verdict::of(decided.reply),
                _ => self.write_one(trip, request.key, Some(&request), decided)?,
            };
            verdicts.push(verdict);
        }
        for (n, verdict) in verdicts.iter_mut().enumerate() {
            let What::Settle(report) = &trip.batch[n].what else { continue };
            let Outcome::Success { asks, .. } = &report.outcome else { continue };
            if verdict.reply != Some(Reply::Settled { counted: true }) || !has_room[n] {
                continue;
            }
            let (sender, sends) = (trip.batch[n].key, asks.sends.clone());
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
                    Reply::Settled { .. } => Some(Reply::Settled { counted: false }),
                    Reply::Done if matches!(request, Some(Request { what: What::Fire(_), .. })) => Some(Reply::Done),
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
        let sending = |model: &Model, standing: &Standing| send(&model.machine, standing, delivery(outgoing), moment);
        match self.read_on(trip, trip.standing(key).clone(), sending).expect(ALL) {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                (key, Decided::of(reply, accepted.changes))
            }
            Err(refusal) => {
                let keeper = if trip.standing(key).is_new { sender } else { key };
                let changes = rejected(Instance::clone(&trip.standing(keeper).instance), outgoing.id, &refusal, trip.now);
                (keeper, Decided::of(Reply::Settled { counted: false }, Some(changes)))
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
fn late(standing: &Standing, request: &Request, report: &Report, now: Timestamp) -> Option<Changes> {
    let is_verbs_own = matches!(report.outcome, Outcome::Success { .. } | Outcome::Failure(_));
    if !is_verbs_own || request.tries > 0 || standing.is_new {
        return None;
    }
    let instance = Instance::clone(&standing.instance);
    let note = Note { instance: instance.id, at: now, kind: NoteKind::Late, call: Some(report.attempt.call), detail: None, actor: None };
    Some(Changes { notes: vec![note], ..Changes::of(instance) })
}
