//! The handling of one batch: read and lock, decide, write. The owner of the transaction commits it afterwards.

mod children;
mod lines;
mod optimistic;
mod outgoing;
#[cfg(feature = "postgres")]
mod single_statement;
#[cfg(feature = "sqlite")]
pub(super) mod speculation;
mod traced;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, Note, NoteKind, Open};
use fsm_core::decide::complete::complete;
use fsm_core::decide::fire::fire;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::interrupt::waits_for_the_attempt;
use fsm_core::decide::operate::operate;
use fsm_core::decide::send::{Send, SendOutcome, put, send};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::ids::{CallId, SessionId};
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::outcome::{Outcome, Problem};
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::batch_snapshot::{BatchSnapshot, Locks};
use super::commit_outcome::{After, ChangedInstance, CommitOutcome, Run};
use super::request::{InstanceKey, Reply, Report, Request, RequestKind};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::claim::Claimed;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::lock::Place;
use crate::store::write::{Written, write};

/// A decision before it is written.
struct Decided {
    reply: Option<Result<Reply, Error>>,
    changes: Option<Changes>,
    permit: Option<OwnedSemaphorePermit>,
    /// The reason why a reported success is written as a failure: a required event that the verb sends is refused.
    refused: Option<Problem>,
    /// The call that the request itself makes. Its trace context, if it has one, is among the changes.
    made: Option<CallId>,
}

impl Decided {
    fn of(reply: Result<Reply, Error>, changes: Option<Changes>) -> Decided {
        Decided { reply: Some(reply), changes, permit: None, refused: None, made: None }
    }

    /// No decision, because the instance is locked. The request waits.
    fn none() -> Decided {
        Decided { reply: None, changes: None, permit: None, refused: None, made: None }
    }
}

/// The handling of one batch.
pub(crate) struct BatchCommit<'e> {
    engine: &'e Engine,
    now: Timestamp,
    /// The session for calls that execute here at once, if its lease is valid.
    session: Option<SessionId>,
    locks: Locks,
    /// The batch runs in a user's transaction, which may be rolled back.
    is_guest: bool,
}

impl<'e> BatchCommit<'e> {
    pub(crate) fn new(engine: &'e Engine) -> BatchCommit<'e> {
        BatchCommit { engine, now: engine.clock.now(), session: engine.session(), is_guest: false, locks: Locks::AreWaitedFor }
    }

    /// Handles one send in a user's transaction. No call starts here, because that transaction may be rolled back. On PostgreSQL one
    /// statement writes everything, so that a dropped future leaves all of it or nothing.
    pub(crate) fn as_guest(engine: &'e Engine) -> BatchCommit<'e> {
        BatchCommit { is_guest: true, ..BatchCommit::new(engine) }
    }

    /// Handles a batch of the committer that does not wait for locks: a request whose instance is locked by another transaction is left
    /// out.
    pub(crate) fn skipping_locked(engine: &'e Engine) -> BatchCommit<'e> {
        BatchCommit { locks: Locks::AreSkipped, ..BatchCommit::new(engine) }
    }

    /// Takes a free slot for a new call, unless calls that come first are known to wait.
    fn free_slot(&self, machine: &str, priority: Priority) -> Option<OwnedSemaphorePermit> {
        let is_admitted = !self.is_guest && self.engine.work.as_ref()?.shares.admits(machine, priority);
        if is_admitted { self.engine.free_slot() } else { None }
    }

    /// Reads, decides and writes a batch of requests for different instances. A request that is refused or outdated does not affect the
    /// others.
    pub(crate) async fn of(&self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<Vec<CommitOutcome>, StoreError> {
        let mut batch_snapshot = BatchSnapshot::read(conn, batch, self.now, self.locks).await?;
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            if !batch_snapshot.locked(request).is_empty() {
                decided.push(Decided::none());
                continue;
            }
            let one = loop {
                match self.decide(&batch_snapshot, request) {
                    Ok(decided) => break decided,
                    Err(NeedsMoreRows) => batch_snapshot.read_on(conn, &request.target).await?,
                }
            };
            decided.push(self.with_required(conn, &mut batch_snapshot, request, one).await?);
        }
        let mut commit_outcomes = self.write(conn, &mut batch_snapshot, batch.iter().map(|request| &request.target), decided).await?;
        self.start_children(conn, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.send_outgoing(conn, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.unsend(conn, &batch_snapshot, batch, &mut commit_outcomes).await?;
        self.deliver_lines(conn, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.inform_parents(conn, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        for (request, commit_outcome) in batch.iter().zip(&mut commit_outcomes) {
            commit_outcome.locked = batch_snapshot.locked(request);
        }
        Ok(commit_outcomes)
    }

    fn decide(&self, batch_snapshot: &BatchSnapshot, request: &Request) -> Result<Decided, NeedsMoreRows> {
        Ok(self.decide_untraced(batch_snapshot, request)?.traced(request))
    }

    fn decide_untraced(&self, batch_snapshot: &BatchSnapshot, request: &Request) -> Result<Decided, NeedsMoreRows> {
        let machine = match self.engine.catalog.expect(&request.target.machine) {
            Ok(known) => &known.machine,
            Err(error) => return Ok(Decided::of(Err(error), None)),
        };
        match &request.kind {
            RequestKind::Send(send) => self.decide_send(batch_snapshot, machine, &request.target, send.clone()),
            RequestKind::Complete(report) => self.decide_complete(batch_snapshot, machine, request, report),
            // The line is read and delivered after the changes of the instances themselves are written.
            RequestKind::Deliver => Ok(Decided::of(Ok(Reply::Delivered { events: 0 }), None)),
            // The children are read after the changes of the instances themselves are written.
            RequestKind::Family => Ok(Decided::of(Ok(Reply::Family { changed: false }), None)),
            RequestKind::Fire(due) => {
                let permit = self.free_slot(&machine.name, due.timer.priority);
                let snapshot = batch_snapshot.snapshot(&request.target);
                let changes = fire(machine, snapshot, due.timer.clone(), self.moment(permit.is_some()))?;
                Ok(Decided { permit, ..Decided::of(Ok(Reply::Fired), Some(changes)) })
            }
            RequestKind::Operate(operation) => {
                let snapshot = batch_snapshot.snapshot(&request.target);
                if snapshot.is_new {
                    let error = Error::not_found(&request.target.machine, &request.target.key);
                    return Ok(Decided::of(Err(error), None));
                }
                Ok(match operate(machine, snapshot, (**operation).clone(), self.moment(false))? {
                    Ok(changes) => Decided::of(Ok(Reply::Operated), changes),
                    Err(refusal) => Decided::of(Err(refusal.into()), None),
                })
            }
        }
    }

    fn decide_send(
        &self,
        batch_snapshot: &BatchSnapshot,
        machine: &Machine,
        target: &InstanceKey,
        request: Send,
    ) -> Result<Decided, NeedsMoreRows> {
        if let Some(known) = batch_snapshot.known(request.id) {
            let reply = Reply::Sent { instance: known.instance, call: known.call, outcome: outcome_of(known.place) };
            return Ok(Decided::of(Ok(reply), None));
        }
        let snapshot = batch_snapshot.snapshot(target);
        let instance = snapshot.instance.id;
        let permit = self.free_slot(&machine.name, request.priority);
        let decide = if self.engine.store.begins_calls() { send } else { put };
        Ok(match decide(machine, snapshot, request, self.moment(permit.is_some()))? {
            Ok(accepted) => {
                let reply = Reply::Sent { instance, call: accepted.call, outcome: accepted.outcome };
                let permit = permit.filter(|_| accepted.outcome == SendOutcome::Started);
                Decided { permit, ..Decided::of(Ok(reply), accepted.changes) }
            }
            Err(refusal) => Decided::of(Err(refusal.into()), None),
        })
    }

    fn decide_complete(
        &self,
        batch_snapshot: &BatchSnapshot,
        machine: &Machine,
        request: &Request,
        report: &Report,
    ) -> Result<Decided, NeedsMoreRows> {
        let snapshot = batch_snapshot.snapshot(&request.target);
        let Report { attempt, outcome, fresh, .. } = report;
        let instance = &snapshot.instance;
        if snapshot.is_new || !instance.is_open || instance.newest != Some((attempt.call, attempt.number)) {
            let changes = self.late(snapshot, request, report);
            return Ok(Decided::of(Ok(Reply::Completed { counted: false }), changes));
        }
        let moment = DecisionContext { fresh: *fresh, ..self.moment(report.permit.is_some() && self.engine.may_start()) };
        let changes = complete(machine, snapshot, attempt, outcome.clone(), moment)?;
        Ok(Decided::of(Ok(Reply::Completed { counted: true }), Some(changes)))
    }

    /// Records a late report, which changes nothing else. Not recorded: a repeated request (the first one may have been committed), and an
    /// outcome that the verb did not report, such as one of the sweeper.
    fn late(&self, snapshot: &InstanceSnapshot, request: &Request, report: &Report) -> Option<Changes> {
        let instance = &snapshot.instance;
        let is_verbs_own = matches!(report.outcome, Outcome::Success { .. } | Outcome::Failure(_));
        // A pruned instance has no history to record it in.
        if !is_verbs_own || request.tries > 0 || snapshot.is_new {
            return None;
        }
        let detail = format!(
            "attempt {} of `{}` reported {} after it was closed",
            report.attempt.number,
            report.attempt.verb,
            report.outcome.word()
        );
        let note = Note {
            instance: instance.id,
            at: self.now,
            kind: NoteKind::Late,
            call: Some(report.attempt.call),
            detail: Some(detail),
            actor: None,
        };
        Some(Changes { notes: vec![note], ..Changes::of(Instance::clone(instance)) })
    }

    fn moment(&self, is_granted: bool) -> DecisionContext {
        let grant = self.session.filter(|_| is_granted);
        DecisionContext { now: self.now, grant, fresh: CallId(Uuid::now_v7()) }
    }

    async fn write(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        target: impl Iterator<Item = &InstanceKey>,
        decided: Vec<Decided>,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let changes: Vec<&Changes> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        let written = match changes[..] {
            [] => Vec::new(),
            #[cfg(feature = "postgres")]
            [send] if self.fits_in_one(conn, send) => vec![self.write_in_one(conn, send).await?],
            _ => write(conn, &changes).await?,
        };
        Ok(self.commit_outcomes(batch_snapshot, target, decided, written))
    }

    /// Builds the commit outcome of each decision. `written` has one entry for each decision that changed something.
    fn commit_outcomes<'w>(
        &self,
        batch_snapshot: &mut BatchSnapshot,
        target: impl Iterator<Item = &'w InstanceKey>,
        decided: Vec<Decided>,
        written: Vec<Written>,
    ) -> Vec<CommitOutcome> {
        let mut written = written.into_iter();
        let mut commit_outcomes = Vec::with_capacity(decided.len());
        for (target, decided) in target.zip(decided) {
            let mut commit_outcome = CommitOutcome { refused: decided.refused, ..CommitOutcome::of(decided.reply) };
            if let Some(changes) = decided.changes {
                match written.next().expect("the store answers for each of the changes") {
                    Written::Done { payload } => {
                        note_what_follows(&mut commit_outcome, &changes);
                        self.note_interrupt(&mut commit_outcome, target, &changes);
                        let executes = changes.open.as_ref().is_some_and(|open| open.attempt.state == AttemptState::Executing);
                        self.note_waiting(&changes);
                        let trace = Decided::trace_of_open_call(&changes, decided.made);
                        batch_snapshot.apply(target, changes);
                        let InstanceSnapshot { instance, newest, has_timer, .. } = batch_snapshot.snapshot(target);
                        let attempt = newest.clone().filter(|_| executes);
                        commit_outcome.runs.extend(attempt.map(|attempt| {
                            let payload = payload.expect("a call that is handed off is new, and has its payload");
                            // Only a first attempt is handed off.
                            let claimed = Claimed {
                                instance: instance.clone(),
                                attempt,
                                payload,
                                last_error: None,
                                seen: None,
                                policy_error: None,
                                trace,
                            };
                            Run { target: target.clone(), claimed, permit: decided.permit }
                        }));
                        commit_outcome.moved.push(ChangedInstance {
                            target: target.clone(),
                            instance: instance.clone(),
                            newest: newest.clone(),
                            has_timer: *has_timer,
                            row_version: None,
                        });
                    }
                    Written::Outdated => commit_outcome.outdated(),
                }
            }
            commit_outcomes.push(commit_outcome);
        }
        commit_outcomes
    }
}

impl BatchCommit<'_> {
    /// Notes that a call waits for a slot, so that new calls do not pass it. A call with a limit waits for its limit.
    fn note_waiting(&self, changes: &Changes) {
        let waits =
            |attempt: &&Attempt| attempt.state == AttemptState::Scheduled && attempt.limit.is_none() && attempt.scheduled_at <= self.now;
        let waiting = changes.open.as_ref().map(|open| &*open.attempt).filter(waits);
        if let (Some(work), Some(attempt)) = (&self.engine.work, waiting) {
            work.shares.note_waiting(&attempt.machine, attempt.priority);
        }
    }

    /// Notes that an event waits that interrupts the executing attempt. Its verb is cancelled, in whichever process it runs.
    fn note_interrupt(&self, commit_outcome: &mut CommitOutcome, target: &InstanceKey, changes: &Changes) {
        let Some(known) = self.engine.catalog.get(&target.machine) else { return };
        if waits_for_the_attempt(&known.machine, changes) {
            commit_outcome.interrupted.push(target.clone());
        }
    }
}

/// Sets the consequence of an attempt that did not succeed, and the earliest time at which something of the `changes` comes due.
fn note_what_follows(commit_outcome: &mut CommitOutcome, changes: &Changes) {
    commit_outcome.after = After::of(changes);
    for change in &changes.timers {
        if let fsm_core::changes::TimerChange::Set(timer) = change {
            commit_outcome.due_at = earlier(commit_outcome.due_at, Some(timer.due_at));
        }
    }
    // A place under a limit is free: what waits for it may start.
    if changes.close.as_ref().is_some_and(|close| close.frees.is_some()) {
        commit_outcome.due_at = earlier(commit_outcome.due_at, Some(changes.instance.updated_at));
    }
    if let Some(Open { attempt, .. }) = &changes.open {
        if attempt.state != AttemptState::Executing && !attempt.held {
            commit_outcome.due_at = earlier(commit_outcome.due_at, Some(attempt.scheduled_at));
        }
    } else if changes.hold.is_some() && !changes.instance.paused {
        commit_outcome.due_at = earlier(commit_outcome.due_at, Some(changes.instance.updated_at));
    }
}

/// The outcome of a repeated send, by the place where its call was found.
fn outcome_of(place: Place) -> SendOutcome {
    match place {
        Place::Call => SendOutcome::Started,
        Place::Inbox | Place::Rejected => SendOutcome::Queued,
        Place::Timer => SendOutcome::Scheduled,
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
