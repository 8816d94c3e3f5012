//! The handling of one batch: read and lock, decide, write. The owner of the transaction commits it afterwards.

mod children;
mod children_elsewhere;
mod lines;
pub mod optimistic;
mod outgoing;
mod traced;

use super::batch_snapshot::{self, BatchSnapshot};
use super::database::Database;
use super::environment::Environment;
use super::instance_key::InstanceKey;
use super::outcome::{After, ChangedInstance, CommitOutcome, Run};
use super::request::{Reply, Report, Request, RequestKind};
use super::rows::{Locks, Place};
use super::written::Written;
use crate::call::AttemptState;
use crate::changes::{Changes, Note, NoteKind, Open, Timer, TimerChange};
use crate::decide::complete::complete;
use crate::decide::fire::fire;
use crate::decide::inbox::NeedsMoreRows;
use crate::decide::interrupt::waits_for_the_attempt;
use crate::decide::operate::{Act, Operation, operate};
use crate::decide::send::{Send, SendOutcome, put, send};
use crate::decide::{DecisionContext, InstanceSnapshot};
use crate::ids::{CallId, SessionId};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::outcome::{Outcome, Problem};
use crate::priority::Priority;
use crate::time::Timestamp;

/// A decision before it is written.
struct Decided<E: Environment> {
    reply: Option<Result<Reply, E::Refused>>,
    changes: Option<Changes>,
    slot: Option<E::Slot>,
    /// The reason why a reported success is written as a failure: a required event that the verb sends is refused.
    refused: Option<Problem>,
    /// The call that the request itself makes. Its trace context, if it has one, is among the changes.
    made: Option<CallId>,
}

impl<E: Environment> Decided<E> {
    fn of(reply: Result<Reply, E::Refused>, changes: Option<Changes>) -> Decided<E> {
        Decided { reply: Some(reply), changes, slot: None, refused: None, made: None }
    }

    /// No decision, because the instance is locked. The request waits.
    fn none() -> Decided<E> {
        Decided { reply: None, changes: None, slot: None, refused: None, made: None }
    }
}

/// The handling of one batch.
pub struct BatchCommit<'e, E> {
    environment: &'e E,
    now: Timestamp,
    /// The session for calls that execute here at once, if its lease is valid.
    session: Option<SessionId>,
    locks: Locks,
    /// The batch runs in a user's transaction, which may be rolled back.
    is_guest: bool,
}

impl<'e, E: Environment> BatchCommit<'e, E> {
    /// A batch that is decided at this time. Calls that execute here at once are given to this session, if its lease is valid.
    pub fn new(environment: &'e E, now: Timestamp, session: Option<SessionId>) -> BatchCommit<'e, E> {
        BatchCommit { environment, now, session, is_guest: false, locks: Locks::AreWaitedFor }
    }

    /// Handles one send in a user's transaction. No call starts here, because that transaction may be rolled back. On PostgreSQL one
    /// statement writes everything, so that a dropped future leaves all of it or nothing.
    pub fn as_guest(self) -> BatchCommit<'e, E> {
        BatchCommit { is_guest: true, ..self }
    }

    /// Does not wait for locks: a request whose instance is locked by another transaction is left out.
    pub fn skipping_locked(self) -> BatchCommit<'e, E> {
        BatchCommit { locks: Locks::AreSkipped, ..self }
    }

    /// The session for calls that execute here at once, if its lease was valid when the batch was created.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Takes a free slot for a new call, unless calls that come first are known to wait.
    fn slot_for_new_call(&self, machine: &str, priority: Priority) -> Option<E::Slot> {
        if self.is_guest { None } else { self.environment.slot_for_new_call(machine, priority) }
    }

    /// Reads, decides and writes a batch of requests for different instances. A request that is refused or outdated does not affect the
    /// others.
    pub async fn of<D: Database>(&self, db: &mut D, batch: &[&Request]) -> Result<Vec<CommitOutcome<E>>, D::Error> {
        let mut batch_snapshot = BatchSnapshot::read(db, batch, &self.new_instance(), self.locks).await?;
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            if !batch_snapshot.locked(request).is_empty() {
                decided.push(Decided::none());
                continue;
            }
            let one = batch_snapshot.decide(db, &request.target, |snapshots| self.decide(snapshots, request)).await?;
            decided.push(self.with_required(db, &mut batch_snapshot, request, one).await?);
        }
        let mut commit_outcomes = self.write(db, &mut batch_snapshot, batch.iter().map(|request| &request.target), decided).await?;
        self.start_children(db, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.send_outgoing(db, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.unsend(db, &batch_snapshot, batch, &mut commit_outcomes).await?;
        self.deliver_lines(db, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        self.inform_parents(db, &mut batch_snapshot, batch, &mut commit_outcomes).await?;
        for (request, commit_outcome) in batch.iter().zip(&mut commit_outcomes) {
            commit_outcome.locked = batch_snapshot.locked(request);
        }
        Ok(commit_outcomes)
    }

    fn decide(&self, batch_snapshot: &BatchSnapshot, request: &Request) -> Result<Decided<E>, NeedsMoreRows> {
        Ok(self.decide_untraced(batch_snapshot, request)?.traced(request))
    }

    fn decide_untraced(&self, batch_snapshot: &BatchSnapshot, request: &Request) -> Result<Decided<E>, NeedsMoreRows> {
        let machine = match self.environment.machine(&request.target.machine) {
            Ok(machine) => machine,
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
                let slot = self.slot_for_new_call(&machine.name, due.priority);
                let snapshot = batch_snapshot.snapshot(&request.target);
                let changes = fire(machine, snapshot, Timer::clone(due), self.moment(slot.is_some()))?;
                Ok(Decided { slot, ..Decided::of(Ok(Reply::Fired), Some(changes)) })
            }
            RequestKind::StartChild(started) => {
                Ok(self.decide_start_of_child(batch_snapshot, machine, &request.target, &started.0, &started.1))
            }
            RequestKind::CancelChild { parent, reason } => {
                let snapshot = batch_snapshot.snapshot(&request.target);
                let is_its_child = snapshot.instance.parent.is_some_and(|own| own.is_in_group_of(*parent));
                if snapshot.is_new || !is_its_child || snapshot.instance.status.is_ended() {
                    return Ok(Decided::of(Ok(Reply::Operated), None));
                }
                let operation = Operation { act: Act::Cancel, reason: Some(reason.clone()), actor: None, request: None };
                Ok(match operate(machine, snapshot, operation, self.moment(false))? {
                    Ok(changes) => Decided::of(Ok(Reply::Operated), changes),
                    Err(refusal) => Decided::of(Err(refusal.into()), None),
                })
            }
            RequestKind::Operate(operation) => {
                let snapshot = batch_snapshot.snapshot(&request.target);
                if snapshot.is_new {
                    let error = self.environment.not_found(&request.target);
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
    ) -> Result<Decided<E>, NeedsMoreRows> {
        if let Some(known) = batch_snapshot.known(request.id) {
            let reply = Reply::Sent { instance: known.instance, call: known.call, outcome: outcome_of(known.place) };
            return Ok(Decided::of(Ok(reply), None));
        }
        let snapshot = batch_snapshot.snapshot(target);
        let instance = snapshot.instance.id;
        let slot = self.slot_for_new_call(&machine.name, request.priority);
        let decide = if self.environment.begins_calls() { send } else { put };
        Ok(match decide(machine, snapshot, request, self.moment(slot.is_some()))? {
            Ok(accepted) => {
                let reply = Reply::Sent { instance, call: accepted.call, outcome: accepted.outcome };
                let slot = slot.filter(|_| accepted.outcome == SendOutcome::Started);
                Decided { slot, ..Decided::of(Ok(reply), accepted.changes) }
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
    ) -> Result<Decided<E>, NeedsMoreRows> {
        let snapshot = batch_snapshot.snapshot(&request.target);
        let Report { attempt, outcome, fresh, .. } = report;
        let instance = &snapshot.instance;
        if snapshot.is_new || !instance.is_open || instance.newest != Some((attempt.call, attempt.number)) {
            let changes = self.late(snapshot, request, report);
            return Ok(Decided::of(Ok(Reply::Completed { counted: false }), changes));
        }
        let moment = DecisionContext { fresh: *fresh, ..self.moment(report.has_slot && self.environment.may_start()) };
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

    fn new_instance(&self) -> impl Fn(&InstanceKey) -> InstanceSnapshot + use<'_, E> {
        |target| batch_snapshot::new(self.environment, target, self.now)
    }

    /// The contexts of events for one instance, in their order. A slot is for one call, and only the first event can start one.
    fn moments(&self, mut is_granted: bool) -> impl FnMut() -> DecisionContext + use<'_, 'e, E> {
        move || self.moment(std::mem::take(&mut is_granted))
    }

    fn moment(&self, is_granted: bool) -> DecisionContext {
        let grant = self.session.filter(|_| is_granted);
        DecisionContext { now: self.now, grant, fresh: CallId(self.environment.fresh()) }
    }

    async fn write<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: impl Iterator<Item = &InstanceKey>,
        decided: Vec<Decided<E>>,
    ) -> Result<Vec<CommitOutcome<E>>, D::Error> {
        let changes: Vec<&Changes> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        let written = match changes[..] {
            [] => Vec::new(),
            _ => db.write(&changes, self.is_guest).await?,
        };
        Ok(self.commit_outcomes(batch_snapshot, target, decided, written))
    }

    /// Builds the commit outcome of each decision. `written` has one entry for each decision that changed something.
    fn commit_outcomes<'w>(
        &self,
        batch_snapshot: &mut BatchSnapshot,
        target: impl Iterator<Item = &'w InstanceKey>,
        decided: Vec<Decided<E>>,
        written: Vec<Written>,
    ) -> Vec<CommitOutcome<E>> {
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
                        if let Some(open) = &changes.open {
                            self.environment.opened(&open.attempt, self.now);
                        }
                        let trace = Decided::<E>::trace_of_open_call(&changes, decided.made);
                        batch_snapshot.apply(target, changes);
                        let InstanceSnapshot { instance, newest, has_timer, .. } = batch_snapshot.snapshot(target);
                        let attempt = newest.clone().filter(|_| executes);
                        commit_outcome.runs.extend(attempt.map(|attempt| {
                            let payload = payload.expect("a call that is handed off is new, and has its payload");
                            Run { target: target.clone(), instance: instance.clone(), attempt, payload, trace, slot: decided.slot }
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

impl<E: Environment> BatchCommit<'_, E> {
    /// Notes that an event waits that interrupts the executing attempt. Its verb is cancelled, in whichever process it runs.
    fn note_interrupt(&self, commit_outcome: &mut CommitOutcome<E>, target: &InstanceKey, changes: &Changes) {
        let Ok(machine) = self.environment.machine(&target.machine) else { return };
        if waits_for_the_attempt(machine, changes) {
            commit_outcome.interrupted.push(target.clone());
        }
    }
}

/// Sets the consequence of an attempt that did not succeed, and the earliest time at which something of the `changes` comes due.
fn note_what_follows<E: Environment>(commit_outcome: &mut CommitOutcome<E>, changes: &Changes) {
    commit_outcome.after = After::of(changes);
    commit_outcome.has_event_elsewhere |=
        changes.concerns_parent() && changes.instance.parent.is_some_and(|parent| parent.partition.is_some());
    for change in &changes.timers {
        if let TimerChange::Set(timer) = change {
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
