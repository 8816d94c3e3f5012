//! The requests to a process and its commits, mirroring `committer.rs` and `worker.rs`. A commit may succeed late, never, or with an
//! unknown outcome.

use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{self, Send};
use fsm_core::ids::SessionId;
use fsm_core::outcome::{Event, Outcome, Outgoing, Problem, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::retry::RetryAdvice;
use std::time::Duration;

use crate::machine::NAME;
use crate::model::batch_commit::{CommitOutcome, INBOX, Run};
use crate::model::promise::Broken;
use crate::model::queue::{BatchCommit, KEYS, Origin, Reply, Report, Request, RequestKind, Seen, Way, key_index};
use crate::model::variant::Variant;
use crate::process::Running;
use crate::step::{Act, Dedup, End, Ending, How};
use crate::world::World;

impl World {
    /// A caller, an operator or a verb sends a request to the committer.
    pub fn ask(&mut self, p: usize, act: &Act) {
        match act {
            Act::Send { key, event, dedup, after_s, reject_if_busy } => {
                let id = self.call_id();
                let name = |dedup: &Dedup| format!("{}/{}{}", KEYS[*key], dedup.id, if dedup.other_content { "!" } else { "" });
                let wish = dedup.as_ref().map_or_else(|| id.to_string(), name).into_bytes();
                let dedup = dedup.map(|dedup| {
                    let digests = vec![[event.as_bytes(), wish.as_slice()].concat()];
                    send::Dedup { id: format!("d{}", dedup.id), digests }
                });
                let deliver_at = after_s.map(|s| self.clock(p) + Duration::from_secs(s));
                let event = Event { name: (*event).to_owned(), payload: wish };
                let send = Send { dedup, deliver_at, reject_if_busy: *reject_if_busy, ..Send::new(id, event, INBOX) };
                self.processes[p].put(*key, RequestKind::Send(send));
            }
            Act::Operate { key, act, request_id } => {
                // The actor identifies this request, so that the ledger notices if it is carried out twice.
                let actor = self.model.fresh().to_string();
                let id = request_id
                    .map(|id| id.to_string())
                    .or_else(|| (self.model.variant != Variant::OperatorWithoutId).then(|| actor.clone()));
                let request = id.map(|id| (format!("\u{1}{id}"), format!("{act:?}").into_bytes()));
                let operation = Operation { act: act.clone(), reason: None, actor: Some(actor), request };
                self.processes[p].put(*key, RequestKind::Operate(Box::new(operation)));
            }
            Act::EndVerb { which, outcome, own_tx } => self.end_verb(p, *which, outcome, *own_tx),
            _ => {}
        }
    }

    fn end_verb(&mut self, p: usize, which: usize, ending: &Ending, own_tx: bool) {
        let running: Vec<usize> = (0..self.processes[p].running.len()).filter(|n| !self.processes[p].running[*n].has_ended).collect();
        let Some(n) = running.get(which.checked_rem(running.len()).unwrap_or(0)).copied() else { return };
        self.processes[p].running[n].has_ended = true;
        let Running { attempt, key, grant, .. } = self.processes[p].running[n].clone();
        let is_early = self.model.variant == Variant::SnapshotTakenEarly;
        let cached = self.processes[p].cache[key].take_if(|_| is_early);
        let outcome = match ending {
            Ending::Failure(advice) => Outcome::Failure(Problem { error: "it failed".into(), advice: *advice }),
            Ending::Snooze(wait_s) => Outcome::Snoozed { wait: Duration::from_secs(*wait_s) },
            Ending::Success { next, sends } => {
                // `ctx.next` checks the event against the graph. A catch verb continues from the state in which the instance rests.
                let rests = if attempt.is_catch() { attempt.from.as_deref() } else { Some(attempt.to.as_str()) };
                let next = next.filter(|next| self.model.machine.edge(rests, next).is_some_and(|edge| edge.after.is_none()));
                let next = next.map(|name| Event { name: name.to_owned(), payload: self.model.fresh().to_string().into_bytes() });
                let mut verb_requests = VerbRequests { next, ..VerbRequests::default() };
                for (to, event, after_s) in sends {
                    let id = self.call_id();
                    self.model.ledger.sent_by.push((id, (attempt.call, attempt.number)));
                    let event = Event { name: (*event).to_owned(), payload: id.to_string().into_bytes() };
                    let deliver_at = after_s.map(|s| self.clock(p) + Duration::from_secs(s));
                    verb_requests.sends.push(Outgoing {
                        id,
                        machine: NAME.into(),
                        key: KEYS[*to].into(),
                        event,
                        deliver_at,
                        is_required: false,
                        search: Vec::new(),
                        priority: Priority::Normal,
                    });
                }
                if self.model.variant == Variant::OutgoingApart {
                    for send in std::mem::take(&mut verb_requests.sends) {
                        let Outgoing { id, event, deliver_at, .. } = send;
                        let send_it = Send { deliver_at, ..Send::new(id, event, INBOX) };
                        self.processes[p].put(key_index(&send.key), RequestKind::Send(send_it));
                    }
                }
                Outcome::Success { record: None, verb_requests, timer: None, search: Vec::new() }
            }
        };
        let own_tx = own_tx && matches!(outcome, Outcome::Success { .. });
        let report = Report { attempt, own_tx, outcome, origin: Origin::Verb(grant) };
        self.processes[p].queue.push(Request { key, kind: RequestKind::Complete(Box::new(report)), tries: 0, cached });
    }

    /// A commit lane takes requests for different instances. It skips instances that this process already works on or, if it waits for
    /// locks, that another process has locked.
    pub fn begin(&mut self, p: usize, most: usize, grants: bool, how: How) {
        let process = &mut self.processes[p];
        let mut taken = process.batch_commits.iter().fold(0, |taken, batch_commit| taken | batch_commit.touches);
        let mut passed_over = 0;
        let (mut batch, mut left): (Vec<Request>, Vec<Request>) = (Vec::new(), Vec::new());
        for request in std::mem::take(&mut process.queue) {
            let touches = request.touches();
            let is_full = batch.len() == most || batch.iter().any(Request::is_alone) || (request.is_alone() && !batch.is_empty());
            if is_full || touches & (taken | passed_over) != 0 {
                passed_over |= touches;
                left.push(request);
            } else {
                taken |= touches;
                batch.push(request);
            }
        }
        process.queue = left;
        if batch.is_empty() {
            return;
        }
        self.remind(p, &mut batch);
        let now = self.clock(p);
        let process = &self.processes[p];
        let grant = process.session(now).filter(|_| grants && !process.is_shutting_down);
        let file_version = process.file_version.filter(|_| how == How::Ahead);
        if (how == How::AtOnce || file_version.is_some()) && batch.iter().all(Request::is_short) {
            let batch_commit = self.model.look(batch, now, grant, file_version);
            self.processes[p].batch_commits.push(batch_commit);
        } else {
            self.set_out(p, batch, grant);
        }
    }

    /// `SnapshotCache::attach`.
    fn remind(&mut self, p: usize, batch: &mut [Request]) {
        let cache = &mut self.processes[p].cache;
        for request in batch.iter_mut() {
            let known = if self.model.variant == Variant::SnapshotKept { cache[request.key].clone() } else { cache[request.key].take() };
            request.cached = known.or(request.cached.take());
        }
        let touched = batch.iter().fold(0, |touched, request| touched | request.touches());
        for key in (0..KEYS.len()).filter(|key| touched & (1 << key) != 0) {
            let is_own = batch.iter().any(|request| request.key == key);
            if self.model.variant != Variant::SnapshotKept && (is_own || self.model.variant != Variant::SnapshotOfAReceiverKept) {
                cache[key] = None;
            }
        }
    }

    /// `FileVersions::now`.
    fn file_version(&mut self, p: usize) -> u64 {
        let file_version = self.model.store.commits - self.processes[p].commits;
        self.processes[p].file_version = Some(file_version);
        file_version
    }

    /// Begins a commit under locks.
    fn set_out(&mut self, p: usize, batch: Vec<Request>, grant: Option<SessionId>) {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        if touches & self.locked() != 0 {
            self.processes[p].queue.splice(0..0, batch);
            return;
        }
        self.file_version(p);
        let batch_commit = self.model.set_out(batch, self.clock(p), grant);
        self.processes[p].batch_commits.push(batch_commit);
    }

    /// The instances that transactions have locked, one bit each.
    pub fn locked(&self) -> u8 {
        let adrift = self.adrift.iter().map(|(_, batch_commit)| batch_commit.locks);
        self.processes
            .iter()
            .flat_map(|process| &process.batch_commits)
            .map(|batch_commit| batch_commit.locks)
            .chain(adrift)
            .fold(0, |all, one| all | one)
    }

    /// `Engine::carry_out`: a batch that was read without a lock is decided, or a decided batch is written, and the commit ends.
    pub fn finish(&mut self, p: usize, which: usize, end: End) -> Result<(), Broken> {
        let Some(n) = which.checked_rem(self.processes[p].batch_commits.len()) else { return Ok(()) };
        let mut batch_commit = self.processes[p].batch_commits.remove(n);
        let is_ahead = matches!(batch_commit.way, Way::Ahead(_));
        if is_ahead && !batch_commit.is_undecided() && self.locked() != 0 {
            // Another process holds the write lock.
            self.processes[p].batch_commits.push(batch_commit);
            return Ok(());
        }
        match end {
            End::Commits if batch_commit.is_undecided() => match self.model.decide_at_once(&mut batch_commit)? {
                true => {
                    if is_ahead && self.model.variant == Variant::FileVersionReadLater {
                        batch_commit.way = Way::Ahead(self.file_version(p));
                    }
                    self.processes[p].batch_commits.insert(n, batch_commit);
                }
                false => self.set_out(p, batch_commit.batch, batch_commit.grant),
            },
            End::AnswerLost if batch_commit.is_undecided() => self.put_back(p, batch_commit.batch),
            End::Fails => self.put_back(p, batch_commit.batch),
            // The write lock is released with the commit, whether or not this process learns its outcome.
            End::AnswerLost if is_ahead => {
                self.put_back(p, batch_commit.batch.clone());
                self.commit(&mut batch_commit, p)?;
            }
            End::AnswerLost => {
                self.put_back(p, batch_commit.batch.clone());
                self.adrift.push((p, batch_commit));
            }
            End::Commits => match self.commit(&mut batch_commit, p)? {
                None if batch_commit.way != Way::Locked => self.set_out(p, batch_commit.batch, batch_commit.grant),
                None => self.put_back(p, batch_commit.batch),
                Some(commit_outcomes) => {
                    // The transaction of a verb is not a commit of the committer.
                    self.processes[p].commits += u64::from(!batch_commit.batch.iter().any(Request::is_alone));
                    self.renew_beside(p);
                    self.conclude(p, batch_commit.batch, commit_outcomes)?;
                }
            },
        }
        Ok(())
    }

    fn commit(&mut self, batch_commit: &mut BatchCommit, p: usize) -> Result<Option<Vec<CommitOutcome>>, Broken> {
        let mut commit_outcomes = match batch_commit.way {
            Way::Locked => self.model.commit(batch_commit)?,
            Way::AtOnce(_) => self.model.commit_at_once(batch_commit, self.locked())?,
            Way::Ahead(_) => {
                let file_version = self.file_version(p);
                self.model.commit_ahead(batch_commit, file_version)?
            }
        };
        self.processes[p].halves.extend(commit_outcomes.iter_mut().flatten().filter_map(|commit_outcome| commit_outcome.half.take()));
        Ok(commit_outcomes)
    }

    /// A commit whose process no longer waits for it reaches the database, or does not.
    pub fn land(&mut self, which: usize, commits: bool) -> Result<(), Broken> {
        let Some(n) = which.checked_rem(self.adrift.len()) else { return Ok(()) };
        let (p, mut batch_commit) = self.adrift.remove(n);
        if commits && self.is_up {
            self.commit(&mut batch_commit, p)?;
        }
        Ok(())
    }

    /// `Engine::put_back`. The report of a verb with a transaction of its own becomes a failure, as in `Engine::report`.
    pub fn put_back(&mut self, p: usize, batch: Vec<Request>) {
        for request in batch {
            match &request.kind {
                RequestKind::Complete(report) if report.own_tx => self.report_failure(p, &request, report),
                _ => self.processes[p].queue.push(Request { tries: request.tries + 1, cached: None, ..request }),
            }
        }
    }

    fn report_failure(&mut self, p: usize, request: &Request, report: &Report) {
        let problem = Problem { error: "the verb's transaction was not committed".into(), advice: RetryAdvice::Default };
        let report = Report { outcome: Outcome::Failure(problem), own_tx: false, ..report.clone() };
        self.processes[p].put(request.key, RequestKind::Complete(Box::new(report)));
    }

    /// `Engine::conclude`.
    fn conclude(&mut self, p: usize, batch: Vec<Request>, commit_outcomes: Vec<CommitOutcome>) -> Result<(), Broken> {
        for (request, commit_outcome) in batch.into_iter().zip(commit_outcomes) {
            let Some(reply) = commit_outcome.reply else {
                let is_again = self.model.variant == Variant::StaleUsedAgain && commit_outcome.left.is_some();
                let tries = if is_again { request.tries } else { request.tries + 1 };
                self.processes[p].queue.push(Request { tries, cached: commit_outcome.left.filter(|_| is_again), ..request });
                continue;
            };
            for run in commit_outcome.runs {
                self.run(p, run)?;
            }
            let runs_here = |left: &Seen| left.instance.newest.is_some_and(|newest| self.processes[p].runs(newest));
            let left = commit_outcome.left.filter(|left| !left.instance.is_open || runs_here(left));
            if self.model.variant != Variant::SnapshotKept || left.is_some() {
                self.processes[p].cache[request.key] = left;
            }
            match (&request.kind, reply) {
                (RequestKind::Complete(report), Reply::Completed { counted: false }) if report.own_tx => {
                    self.report_failure(p, &request, report)
                }
                (RequestKind::Complete(report), _) => {
                    let (call, number) = (report.attempt.call, report.attempt.number);
                    if matches!(report.origin, Origin::Verb(_) | Origin::ShutDown) {
                        self.processes[p].running.retain(|running| (running.attempt.call, running.attempt.number) != (call, number));
                    }
                }
                (_, Reply::Sent { call, .. }) => self.model.ledger.told.push(call),
                _ => {}
            }
        }
        Ok(())
    }

    /// `Engine::run`.
    pub fn run(&mut self, p: usize, Run { attempt, grant }: Run) -> Result<(), Broken> {
        self.model.ledger.begins(&self.model.store, &attempt, grant)?;
        let key = key_index(self.model.store.key_of(attempt.instance));
        self.processes[p].running.push(Running { attempt, key, grant, has_ended: false });
        Ok(())
    }

    /// Writes the second half of the changes of `RetryOutsideTheTransaction`, unless its process died in between.
    pub fn write_second_half(&mut self, p: usize) -> Result<(), Broken> {
        if let Some(half) = self.processes[p].halves.pop()
            && let Some(open) = &half.open
        {
            self.model.store.open(&half, open, &std::collections::BTreeMap::new(), self.model.variant)?;
            self.model.is_dirty = true;
        }
        Ok(())
    }
}
