//! The trip of a batch, mirroring `committer/{board,trip}.rs`: read under locks, decide by the real decisions, write.

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Note, NoteKind};
use fsm_core::decide::fire::{fire, rejected};
use fsm_core::decide::inbox::Unread;
use fsm_core::decide::operate::operate;
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::settle::settle;
use fsm_core::decide::{Moment, Standing};
use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::{Outcome, Outgoing};
use fsm_core::time::Timestamp;

use super::Model;
use super::door::Written;
use super::queue::{Board, Decided, KEYS, Origin, Reply, Report, Request, Trip, What, key_index};
use super::variant::Variant;

/// So many events may wait for one instance.
pub const INBOX: u64 = 4;
/// So many of them are read at first.
const FIRST: usize = 1;

/// What became of one request once its transaction is committed.
pub struct Verdict {
    /// `None`: another process was faster, and it has to be decided again.
    pub reply: Option<Reply>,
    /// Attempts that run here now, with their grants.
    pub runs: Vec<(Attempt, u64)>,
    /// What a broken engine has forgotten to write, and writes later.
    pub half: Option<Changes>,
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
            board.standings[key] = Some(self.read(key, request, now));
        }
        for request in batch.iter().filter(|request| request.tries > 0 && self.variant != Variant::RepeatWithoutLooking) {
            if let What::Send(send) = &request.what {
                board.known.extend(self.store.known(send.id).map(|fate| (send.id, fate)));
            }
        }
        let mut trip = Trip { now, grant, batch, decided: Vec::new(), board, touches, locks };
        trip.decided = (0..trip.batch.len()).map(|n| self.decide(&trip, &trip.batch[n].clone())).collect();
        trip
    }

    fn read(&mut self, key: usize, request: Option<&Request>, now: Timestamp) -> Standing {
        let Some(instance) = self.store.instance(KEYS[key]).cloned() else {
            let instance = Instance::new(InstanceId(self.fresh()), &self.machine.name, KEYS[key], now);
            return Standing { is_new: true, ..Standing::of(instance) };
        };
        let mut standing = Standing::of(instance);
        let newest = standing.instance.newest;
        let is_operated = matches!(request, Some(Request { what: What::Operate(_), .. }));
        match request.map(|request| &request.what) {
            Some(What::Settle(report)) if newest == Some((report.attempt.call, report.attempt.number)) => {
                standing.newest = Some(report.attempt.clone());
            }
            _ if standing.instance.is_open || standing.instance.status == Status::Error || is_operated => {
                standing.newest = newest.and_then(|id| self.store.attempt(id)).cloned();
            }
            _ => {}
        }
        if let Some(caught) = standing.newest.as_ref().filter(|newest| newest.is_catch() && is_operated).and_then(|newest| newest.previous)
        {
            standing.caught = self.store.last_attempt(caught).cloned();
        }
        standing.inbox = self.store.inbox(standing.instance.id, FIRST);
        standing.has_timer = self.store.timers.values().any(|(timer, _)| timer.instance == standing.instance.id && timer.state.is_some());
        let dedup = match request.map(|request| &request.what) {
            Some(What::Send(_)) if self.variant == Variant::DedupWithoutLooking => None,
            Some(What::Send(send)) => send.dedup.as_ref().map(|dedup| dedup.id.clone()),
            Some(What::Operate(operation)) => operation.request.as_ref().map(|(id, _)| id.clone()),
            _ => None,
        };
        standing.request = dedup.and_then(|id| self.store.requests.get(&(standing.instance.id, id))).cloned();
        standing
    }

    fn decide(&mut self, trip: &Trip, request: &Request) -> Decided {
        let standing = trip.standing(request.key).clone();
        match &request.what {
            What::Send(send) => self.decide_send(trip, request.key, send.clone()),
            What::Settle(report) => self.decide_settle(trip, request, report),
            What::Fire(timer) => {
                let moment = self.moment(trip);
                let changes = self.read_on(standing, |model, standing| fire(&model.machine, standing, (**timer).clone(), INBOX, moment));
                Decided { reply: Reply::Done, changes: Some(changes) }
            }
            What::Operate(_) if standing.is_new => Decided { reply: Reply::Refused, changes: None },
            What::Operate(operation) => {
                let moment = Moment { grant: None, ..self.moment(trip) };
                match self.read_on(standing, |model, standing| operate(&model.machine, standing, (**operation).clone(), moment)) {
                    Ok(changes) => Decided { reply: Reply::Done, changes },
                    Err(_) => Decided { reply: Reply::Refused, changes: None },
                }
            }
        }
    }

    fn decide_send(&mut self, trip: &Trip, key: usize, request: Send) -> Decided {
        if let Some((call, fate)) = trip.board.known.iter().find(|(call, _)| *call == request.id) {
            return Decided { reply: Reply::Sent { call: *call, fate: *fate }, changes: None };
        }
        let moment = self.moment(trip);
        match self.read_on(trip.standing(key).clone(), |model, standing| send(&model.machine, standing, request.clone(), moment)) {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, fate: accepted.fate };
                Decided { reply, changes: accepted.changes }
            }
            Err(_) => Decided { reply: Reply::Refused, changes: None },
        }
    }

    fn decide_settle(&mut self, trip: &Trip, request: &Request, report: &Report) -> Decided {
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
            return Decided { reply: Reply::Settled { counted: false }, changes: late(standing, request, report, trip.now) };
        }
        let moment = self.moment(trip);
        let settling = |model: &Model, standing: &Standing| settle(&model.machine, standing, &attempt, report.outcome.clone(), moment);
        let mut changes = self.read_on(standing.clone(), settling);
        if let (true, Some(close)) = (self.variant == Variant::LateReportById, &mut changes.close) {
            close.expected = attempt.state;
        }
        Decided { reply: Reply::Settled { counted: true }, changes: Some(changes) }
    }

    /// A decision that needs more of the inbox gets all of it.
    fn read_on<T>(&self, mut standing: Standing, decide: impl Fn(&Model, &Standing) -> Result<T, Unread>) -> T {
        decide(self, &standing).unwrap_or_else(|Unread| {
            standing.inbox.first = self.store.waiting(standing.instance.id);
            decide(self, &standing).expect("all of the inbox was read")
        })
    }

    fn moment(&mut self, trip: &Trip) -> Moment {
        Moment { now: trip.now, grant: trip.grant, fresh: fsm_core::ids::CallId(self.fresh()) }
    }

    /// `Trip::write` and `Trip::send_outgoing`: the transaction commits. `None` when all of it was rolled back, to be decided again.
    pub fn commit(&mut self, trip: &mut Trip) -> Result<Option<Vec<Verdict>>, String> {
        let has_outgoing = trip.batch.iter().any(|request| request.touches() != 1 << request.key);
        let before = has_outgoing.then(|| (self.store.clone(), self.ledger.clone()));
        let mut verdicts = Vec::new();
        for (n, decided) in std::mem::take(&mut trip.decided).into_iter().enumerate() {
            let request = trip.batch[n].clone();
            let verdict = match decided.reply {
                // Not even the note of a late report outlives the transaction of a verb that was too late.
                Reply::Settled { counted: false } if request.is_alone() => {
                    Verdict { reply: Some(decided.reply), runs: Vec::new(), half: None }
                }
                _ => self.write_one(trip, request.key, Some(&request), decided)?,
            };
            verdicts.push(verdict);
        }
        for (n, verdict) in verdicts.iter_mut().enumerate() {
            let What::Settle(report) = &trip.batch[n].what else { continue };
            let Outcome::Success { asks, .. } = &report.outcome else { continue };
            if verdict.reply != Some(Reply::Settled { counted: true }) {
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

    fn write_one(&mut self, trip: &mut Trip, key: usize, request: Option<&Request>, decided: Decided) -> Result<Verdict, String> {
        let mut verdict = Verdict { reply: Some(decided.reply), runs: Vec::new(), half: None };
        let Some(mut changes) = decided.changes else { return Ok(verdict) };
        let half = self.second_half(&mut changes);
        let held = changes.close.as_ref().and_then(|close| self.store.calls.get(&(close.call, close.number))).cloned();
        match self.store.write(&changes, self.variant)? {
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
                if let Some(open) = changes.open.filter(|open| open.attempt.worker.is_some()) {
                    let grant = self.store.calls.get(&(open.attempt.call, open.attempt.number)).map_or(0, |row| row.grant);
                    verdict.runs.push((open.attempt, grant));
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
        let (event, deliver_at) = (outgoing.event.clone(), outgoing.deliver_at);
        let request = Send { id: outgoing.id, event, dedup: None, deliver_at, or_refuse: false, inbox_limit: INBOX };
        let moment = self.moment(trip);
        match self.read_on(trip.standing(key).clone(), |model, standing| send(&model.machine, standing, request.clone(), moment)) {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, fate: accepted.fate };
                (key, Decided { reply, changes: accepted.changes })
            }
            Err(refusal) => {
                let keeper = if trip.standing(key).is_new { sender } else { key };
                let changes = rejected(trip.standing(keeper).instance.clone(), outgoing.id, &refusal, trip.now);
                (keeper, Decided { reply: Reply::Settled { counted: false }, changes: Some(changes) })
            }
        }
    }
}

/// `Trip::late`.
fn late(standing: &Standing, request: &Request, report: &Report, now: Timestamp) -> Option<Changes> {
    let is_verbs_own = matches!(report.outcome, Outcome::Success { .. } | Outcome::Failure(_));
    if !is_verbs_own || request.tries > 0 || standing.is_new {
        return None;
    }
    let instance = standing.instance.clone();
    let note = Note { instance: instance.id, at: now, kind: NoteKind::Late, call: Some(report.attempt.call), detail: None, actor: None };
    Some(Changes { notes: vec![note], ..Changes::of(instance) })
}

impl Trip {
    fn standing(&self, key: usize) -> &Standing {
        self.board.standings[key].as_ref().expect("the board was read for every instance of the batch")
    }

    /// `Board::apply`.
    fn apply(&mut self, key: usize, changes: &Changes) {
        let standing = self.board.standings[key].as_mut().expect("the board was read for every instance of the batch");
        standing.instance = changes.instance.clone();
        standing.is_new = false;
        if let Some(open) = &changes.open {
            standing.newest = Some(open.attempt.clone());
        }
        standing.inbox.apply(changes);
    }
}
