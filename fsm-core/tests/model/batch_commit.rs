//! The commit of a batch, mirroring `committer/batch_commit.rs`: read under locks, decide with the real decisions, write.

use std::borrow::Cow;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Note, NoteKind};
use fsm_core::decide::complete::complete;
use fsm_core::decide::fire::{fire, rejected};
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::operate::operate;
use fsm_core::decide::outbox::{Delivery, deliver};
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::send::{Send, send};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::outcome::{Outcome, Outgoing};
use fsm_core::time::Timestamp;

use super::Model;
use super::promise::Broken;
use super::queue::{BatchCommit, BatchSnapshot, Decided, KEYS, Origin, Reply, Report, Request, RequestKind, Seen, Way, key_index};
use super::variant::Variant;
use super::write_path::Written;

/// The maximum number of events in an inbox.
pub const INBOX: u64 = 4;
/// The reason why a decision under locks is never `NeedsMoreRows`.
pub const ALL: &str = "all of the inbox was read";

/// The outcome of one request after its transaction was committed.
pub struct CommitOutcome {
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

impl CommitOutcome {
    /// An outcome without consequences.
    pub fn of(reply: Reply) -> CommitOutcome {
        CommitOutcome { reply: Some(reply), runs: Vec::new(), has_written: false, left: None, half: None }
    }
}

impl Model {
    /// `BatchSnapshot::read` and `BatchCommit::decide`.
    pub fn set_out(&mut self, batch: Vec<Request>, now: Timestamp, grant: Option<fsm_core::ids::SessionId>) -> BatchCommit {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let exists = |key: &usize| self.store.instance(KEYS[*key]).is_some();
        let locks = (0..KEYS.len()).filter(|key| touches & (1 << key) != 0).filter(exists).fold(0, |locks, key| locks | (1 << key));
        let mut batch_snapshot = BatchSnapshot { snapshots: Default::default(), known: Vec::new() };
        for key in (0..KEYS.len()).filter(|key| touches & (1 << key) != 0) {
            let request = batch.iter().find(|request| request.key == key);
            let seen = self.store.see(KEYS[key]);
            let mut snapshot = self.snapshot(key, seen, now);
            self.read_rest(&mut snapshot, request);
            batch_snapshot.snapshots[key] = Some(snapshot);
        }
        for request in batch.iter().filter(|request| request.tries > 0 && self.variant != Variant::RepeatWithoutLooking) {
            if let RequestKind::Send(send) = &request.kind {
                batch_snapshot.known.extend(self.store.known(send.id).map(|outcome| (send.id, outcome)));
            }
        }
        let mut batch_commit = BatchCommit { now, grant, batch, decided: Vec::new(), batch_snapshot, touches, locks, way: Way::Locked };
        let decide = |n: usize| self.decide(&batch_commit, &batch_commit.batch[n]).expect(ALL);
        batch_commit.decided = (0..batch_commit.batch.len()).map(decide).collect();
        batch_commit
    }

    pub fn decide(&mut self, batch_commit: &BatchCommit, request: &Request) -> Result<Decided, NeedsMoreRows> {
        let snapshot = batch_commit.snapshot(request.key).clone();
        Ok(match &request.kind {
            RequestKind::Send(send) => self.decide_send(batch_commit, request.key, send.clone())?,
            RequestKind::Complete(report) => self.decide_complete(batch_commit, request, report)?,
            RequestKind::Fire(timer) => {
                let moment = self.moment(batch_commit);
                let firing = |model: &Model, snapshot: &InstanceSnapshot| fire(&model.machine, snapshot, (**timer).clone(), moment);
                let changes = self.read_on(batch_commit, snapshot, firing)?;
                Decided::of(Reply::Done, Some(changes))
            }
            RequestKind::Deliver(_) => Decided::of(Reply::Done, None),
            RequestKind::Operate(_) if snapshot.is_new => Decided::of(Reply::Refused, None),
            RequestKind::Operate(operation) => {
                let moment = DecisionContext { grant: None, ..self.moment(batch_commit) };
                let operating =
                    |model: &Model, snapshot: &InstanceSnapshot| operate(&model.machine, snapshot, (**operation).clone(), moment);
                match self.read_on(batch_commit, snapshot, operating)? {
                    Ok(changes) => Decided::of(Reply::Done, changes),
                    Err(_) => Decided::of(Reply::Refused, None),
                }
            }
        })
    }

    fn decide_send(&mut self, batch_commit: &BatchCommit, key: usize, request: Send) -> Result<Decided, NeedsMoreRows> {
        if let Some((call, outcome)) = batch_commit.batch_snapshot.known.iter().find(|(call, _)| *call == request.id) {
            return Ok(Decided::of(Reply::Sent { call: *call, outcome: *outcome }, None));
        }
        let moment = self.moment(batch_commit);
        let sending = |model: &Model, snapshot: &InstanceSnapshot| send(&model.machine, snapshot, request.clone(), moment);
        Ok(match self.read_on(batch_commit, batch_commit.snapshot(key).clone(), sending)? {
            Ok(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                Decided::of(reply, accepted.changes)
            }
            Err(_) => Decided::of(Reply::Refused, None),
        })
    }

    fn decide_complete(&mut self, batch_commit: &BatchCommit, request: &Request, report: &Report) -> Result<Decided, NeedsMoreRows> {
        let snapshot = batch_commit.snapshot(request.key);
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
            return Ok(Decided::of(Reply::Completed { counted: false }, late(snapshot, request, report, batch_commit.now)));
        }
        let moment = self.moment(batch_commit);
        let as_decided = self.as_decided(&attempt);
        let completing = |model: &Model, snapshot: &InstanceSnapshot| {
            let mut snapshot = snapshot.clone();
            let dropped = model.drops_an_interrupt(&mut snapshot, &report.outcome);
            let mut changes = complete(&model.machine_of(&report.outcome), &snapshot, &as_decided, report.outcome.clone(), moment)?;
            if let Some(dropped) = dropped {
                changes.inbox_taken = Some(dropped..changes.inbox_taken.map_or(dropped + 1, |taken| taken.end));
            }
            Ok(changes)
        };
        let mut changes = self.read_on(batch_commit, snapshot.clone(), completing)?;
        if let (true, Some(close)) = (self.variant == Variant::LateReportById, &mut changes.close) {
            close.expected = attempt.state;
        }
        if let (Variant::SnoozeUsesARetry, Outcome::Snoozed { .. }, Some(open)) = (self.variant, &report.outcome, &mut changes.open) {
            let retry_state = &mut std::sync::Arc::make_mut(&mut open.attempt).retry_state;
            retry_state.remaining = retry_state.remaining.map(|left| left.saturating_sub(1));
        }
        Ok(Decided::of(Reply::Completed { counted: true }, Some(changes)))
    }

    /// Returns the attempt. An engine that does not know internal transitions takes them for self-edges.
    fn as_decided(&self, attempt: &Attempt) -> Attempt {
        match self.variant {
            Variant::StayMovesTheTimer if attempt.is_stay() => Attempt { verb: attempt.to.clone(), ..attempt.clone() },
            _ => attempt.clone(),
        }
    }

    /// Returns the machine. For an engine that retries in spite of an interrupt, its events do not interrupt.
    fn machine_of(&self, outcome: &Outcome) -> Cow<'_, Machine> {
        let mut machine = Cow::Borrowed(&self.machine);
        if self.variant == Variant::InterruptWaits && !matches!(outcome, Outcome::Success { .. }) {
            machine.to_mut().edges.iter_mut().for_each(|edge| edge.interrupts = false);
        }
        machine
    }

    /// For an engine that drops it: removes the first waiting event if it interrupts an attempt that succeeded. Returns its position.
    fn drops_an_interrupt(&self, snapshot: &mut InstanceSnapshot, outcome: &Outcome) -> Option<i64> {
        let first = snapshot.inbox.first.first()?;
        let edge = self.machine.edge(snapshot.instance.state.as_deref(), &first.event)?;
        let is_dropped = self.variant == Variant::InterruptLosesToSuccess && matches!(outcome, Outcome::Success { .. }) && edge.interrupts;
        is_dropped.then(|| {
            let position = snapshot.inbox.first.remove(0).position;
            Arc::make_mut(&mut snapshot.instance).inbox_head = position + 1;
            position
        })
    }

    /// Decides under locks. If the decision needs more of the inbox, it gets all of it.
    fn read_on<T>(
        &self,
        batch_commit: &BatchCommit,
        mut snapshot: InstanceSnapshot,
        decide: impl Fn(&Model, &InstanceSnapshot) -> Result<T, NeedsMoreRows>,
    ) -> Result<T, NeedsMoreRows> {
        decide(self, &snapshot).or_else(|NeedsMoreRows| match batch_commit.way {
            Way::AtOnce(_) | Way::Ahead(_) => Err(NeedsMoreRows),
            Way::Locked => {
                snapshot.inbox.first = self.store.waiting(snapshot.instance.id);
                decide(self, &snapshot)
            }
        })
    }

    pub fn moment(&mut self, batch_commit: &BatchCommit) -> DecisionContext {
        DecisionContext { now: batch_commit.now, grant: batch_commit.grant, fresh: CallId(self.fresh()) }
    }

    /// `BatchCommit::write` and `BatchCommit::send_outgoing`: the transaction commits. Returns `None` if it was rolled back, to be decided
    /// again.
    pub fn commit(&mut self, batch_commit: &mut BatchCommit) -> Result<Option<Vec<CommitOutcome>>, Broken> {
        let has_outgoing = batch_commit
            .batch
            .iter()
            .any(|request| request.touches() != 1 << request.key || matches!(request.kind, RequestKind::Deliver(_)));
        let before = has_outgoing.then(|| (self.store.clone(), self.ledger.clone()));
        self.store.commits += 1;
        let mut commit_outcomes = Vec::new();
        let decided = std::mem::take(&mut batch_commit.decided);
        for (n, decided) in decided.into_iter().enumerate() {
            let request = batch_commit.batch[n].clone();
            let commit_outcome = match decided.reply {
                // If a verb with a transaction of its own reports too late, everything is rolled back, including the history entry of the
                // late report.
                Reply::Completed { counted: false } if request.is_alone() => CommitOutcome::of(decided.reply),
                _ => self.write_one(batch_commit, request.key, Some(&request), decided)?,
            };
            commit_outcomes.push(commit_outcome);
        }
        for (n, commit_outcome) in commit_outcomes.iter_mut().enumerate() {
            let RequestKind::Complete(report) = &batch_commit.batch[n].kind else { continue };
            let Outcome::Success { verb_requests, .. } = &report.outcome else { continue };
            if commit_outcome.reply != Some(Reply::Completed { counted: true }) {
                continue;
            }
            let (sender, sends) = (batch_commit.batch[n].key, verb_requests.sends.clone());
            let sender_id = batch_commit.snapshot(sender).instance.id;
            for outgoing in &sends {
                if outgoing.deliver_at.is_none_or(|at| at <= batch_commit.now) {
                    self.ledger.sent.push((outgoing.id, sender_id, outgoing.key.clone()));
                }
                let Some((keeper, decided)) = self.decide_outgoing(batch_commit, sender, outgoing) else {
                    self.put_in_outbox(sender_id, outgoing, batch_commit.now);
                    continue;
                };
                let one = self.write_one(batch_commit, keeper, None, decided)?;
                commit_outcome.runs.extend(one.runs);
                if one.reply.is_none() {
                    (self.store, self.ledger) = before.expect("there is something outgoing");
                    return Ok(None);
                }
            }
            self.ledger.told.extend(sends.iter().map(|outgoing| outgoing.id));
        }
        for (n, commit_outcome) in commit_outcomes.iter_mut().enumerate() {
            let RequestKind::Deliver(read_before) = batch_commit.batch[n].kind.clone() else { continue };
            match self.deliver(batch_commit, batch_commit.batch[n].key, &read_before)? {
                Some(delivered) => *commit_outcome = delivered,
                None => {
                    (self.store, self.ledger) = before.expect("a line is delivered");
                    return Ok(None);
                }
            }
        }
        self.is_dirty = true;
        Ok(Some(commit_outcomes))
    }

    pub fn write_one(
        &mut self,
        batch_commit: &mut BatchCommit,
        key: usize,
        request: Option<&Request>,
        decided: Decided,
    ) -> Result<CommitOutcome, Broken> {
        let mut commit_outcome = CommitOutcome::of(decided.reply);
        let Some(mut changes) = decided.changes else { return Ok(commit_outcome) };
        let half = self.second_half(&mut changes);
        let held = changes.close.as_ref().and_then(|close| self.store.calls.get(&(close.call, close.number))).cloned();
        match self.store.write(&changes, batch_commit.variant(self.variant))? {
            Written::Outdated => {
                commit_outcome.reply = match decided.reply {
                    Reply::Completed { .. } => Some(Reply::Completed { counted: false }),
                    Reply::Done if matches!(request, Some(Request { kind: RequestKind::Fire(_), .. })) => Some(Reply::Done),
                    _ => None,
                };
            }
            Written::Done => {
                commit_outcome.half = half;
                self.ledger.account(&self.store, &changes, held.as_ref(), request)?;
                batch_commit.apply(key, &changes);
                commit_outcome.has_written = true;
                if let Some(open) = changes.open.filter(|open| open.attempt.worker.is_some()) {
                    let grant = self.store.calls.get(&(open.attempt.call, open.attempt.number)).map_or(0, |row| row.grant);
                    commit_outcome.runs.push(Run { attempt: Arc::unwrap_or_clone(open.attempt), grant });
                }
            }
        }
        Ok(commit_outcome)
    }

    fn second_half(&self, changes: &mut Changes) -> Option<Changes> {
        let is_again = matches!((&changes.close, &changes.open), (Some(close), Some(open)) if close.call == open.attempt.call);
        if self.variant != Variant::RetryOutsideTheTransaction || !is_again {
            return None;
        }
        Some(Changes { open: changes.open.take(), ..Changes::of(changes.instance.clone()) })
    }

    /// Returns `None` for an event that waits in the outbox.
    fn decide_outgoing(&mut self, batch_commit: &BatchCommit, sender: usize, outgoing: &Outgoing) -> Option<(usize, Decided)> {
        let key = key_index(&outgoing.key);
        let moment = self.moment(batch_commit);
        let is_blind = matches!(self.variant, Variant::FullInboxDrops | Variant::OutboxOutOfOrder);
        let has_line = !is_blind && self.store.line(&outgoing.key).next().is_some();
        let sending = |model: &Model, snapshot: &InstanceSnapshot| deliver(&model.machine, snapshot, delivery(outgoing), has_line, moment);
        match self.read_on(batch_commit, batch_commit.snapshot(key).clone(), sending).expect(ALL) {
            Delivery::Taken(accepted) => {
                let reply = Reply::Sent { call: accepted.call, outcome: accepted.outcome };
                Some((key, Decided::of(reply, accepted.changes)))
            }
            Delivery::Waits if self.variant != Variant::FullInboxDrops => None,
            refused => {
                let why = Refusal::Busy { whose: outgoing.key.clone(), why: "its inbox is full".to_owned() };
                let refusal = if let Delivery::Refused(refusal) = refused { refusal } else { why };
                let keeper = if batch_commit.snapshot(key).is_new { sender } else { key };
                let changes = rejected(Instance::clone(&batch_commit.snapshot(keeper).instance), outgoing.id, &refusal, batch_commit.now);
                Some((keeper, Decided::of(Reply::Completed { counted: false }, Some(changes))))
            }
        }
    }
}

/// `BatchCommit::delivery`.
pub fn delivery(outgoing: &Outgoing) -> Send {
    let (event, deliver_at) = (outgoing.event.clone(), outgoing.deliver_at);
    Send { deliver_at, ..Send::new(outgoing.id, event, INBOX) }
}

/// `BatchCommit::late`.
fn late(snapshot: &InstanceSnapshot, request: &Request, report: &Report, now: Timestamp) -> Option<Changes> {
    let is_verbs_own = matches!(report.outcome, Outcome::Success { .. } | Outcome::Failure(_));
    if !is_verbs_own || request.tries > 0 || snapshot.is_new {
        return None;
    }
    let instance = Instance::clone(&snapshot.instance);
    let note = Note { instance: instance.id, at: now, kind: NoteKind::Late, call: Some(report.attempt.call), detail: None, actor: None };
    Some(Changes { notes: vec![note], ..Changes::of(instance) })
}
