//! The requests to a process and its commits, mirroring `committer.rs` and `worker.rs`. A commit may succeed late, never, or with an
//! unknown outcome.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fsm_core::call::Attempt;
use fsm_core::commit::outcome::ChangedInstance;
use fsm_core::commit::partition_delivery::SendAnswer;
use fsm_core::commit::request::{Reply, RequestKind};
use fsm_core::commit::rows::{CachedSnapshot, RowSnapshot};
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{self, Send};
use fsm_core::ids::SessionId;
use fsm_core::outcome::{Event, Outcome, Outgoing, Problem, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::retry::RetryAdvice;

use crate::machine::NAME;
use crate::model::commit::{Commit, CommitOutcome, INBOX, Refused, Stop, Way};
use crate::model::ledger::Ledger;
use crate::model::promise::{Broken, Promise};
use crate::model::queue::{KEYS, Origin, Request, key_index};
use crate::model::store::Store;
use crate::model::variant::Variant;
use crate::process::Running;
use crate::step::{Act, Dedup, End, Ending, How};
use crate::world::World;

/// The answer to the send of an event from another partition.
fn answer_to(reply: &Result<Reply, Refused>) -> SendAnswer {
    match reply {
        Ok(_) => SendAnswer::Taken,
        Err(Refused(refusal)) => refusal.as_ref().map_or(SendAnswer::Failed, SendAnswer::from),
    }
}

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
                let request = Request::send(&self.model.machine, *key, send);
                self.processes[p].queue.push(request);
            }
            Act::Operate { key, act, request_id } => {
                // The actor identifies this request, so that the ledger notices if it is carried out twice.
                let actor = self.model.fresh().to_string();
                let id = request_id
                    .map(|id| id.to_string())
                    .or_else(|| (self.model.variant != Variant::OperatorWithoutId).then(|| actor.clone()));
                let request = id.map(|id| (format!("\u{1}{id}"), format!("{act:?}").into_bytes()));
                let operation = Operation { act: act.clone(), reason: None, actor: Some(actor), request };
                let request = Request::operate(&self.model.machine, *key, operation);
                self.processes[p].queue.push(request);
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
            Ending::Success { next, sends, cancels } => {
                // `ctx.next` checks the event against the graph. A catch verb continues from the state in which the instance rests.
                let rests = if attempt.is_catch() { attempt.from.as_deref() } else { Some(attempt.to.as_str()) };
                let next = next.filter(|next| self.model.machine.edge(rests, next).is_some_and(|edge| edge.after.is_none()));
                let next = next.map(|name| Event { name: name.to_owned(), payload: self.model.fresh().to_string().into_bytes() });
                let mut verb_requests = VerbRequests { next, ..VerbRequests::default() };
                if *cancels {
                    let sent = self.model.ledger.elsewhere.iter().filter(|sent| sent.sender == attempt.instance && sent.is_delayed);
                    verb_requests.unsends.extend(sent.map(|sent| sent.call));
                }
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
                        let Outgoing { id, ref event, deliver_at, .. } = send;
                        let send_it = Send { deliver_at, ..Send::new(id, event.clone(), INBOX) };
                        let request = Request::send(&self.model.machine, key_index(&send.key), send_it);
                        self.processes[p].queue.push(request);
                    }
                }
                Outcome::Success { record: None, verb_requests, timer: None, search: Vec::new() }
            }
        };
        let own_tx = own_tx && matches!(outcome, Outcome::Success { .. });
        let fresh = self.model.fresh();
        let mut request = Request::complete(&self.model.machine, key, attempt, outcome, Origin::Verb(grant), fresh);
        (request.own_tx, request.request.cached) = (own_tx, cached);
        self.processes[p].queue.push(request);
    }

    /// A commit lane takes requests for different instances. It skips instances that this process already works on or, if it waits for
    /// locks, that another process has locked.
    pub fn begin(&mut self, p: usize, most: usize, grants: bool, how: How) -> Result<(), Broken> {
        let process = &mut self.processes[p];
        let mut taken = process.commits_in_flight.iter().fold(0, |taken, commit| taken | commit.touches);
        let mut passed_over = 0;
        let (mut batch, mut left): (Vec<Request>, Vec<Request>) = (Vec::new(), Vec::new());
        let wanted = std::mem::take(&mut process.queue).into_iter().filter(|request| process.wants(request, self.now, self.model.variant));
        for request in wanted.collect::<Vec<_>>() {
            let touches = request.touches();
            let is_full = batch.len() == most || batch.iter().any(|request| request.own_tx) || (request.own_tx && !batch.is_empty());
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
            return Ok(());
        }
        self.remind(p, &mut batch);
        let now = self.clock(p);
        let process = &self.processes[p];
        let grant = process.session(now).filter(|_| grants && !process.is_shutting_down);
        let file_version = process.file_version.filter(|_| how == How::Ahead);
        if (how == How::AtOnce || file_version.is_some()) && batch.iter().all(Request::is_short) {
            let way = file_version.map_or(Way::AtOnce, Way::Ahead);
            match self.model.begin(batch.clone(), now, grant, way) {
                Ok(commit) => self.processes[p].commits_in_flight.push(commit),
                Err(Err(Stop::Broken(broken))) => return Err(broken),
                // It needs locks.
                Err(_) => return self.set_out(p, batch, grant),
            }
            Ok(())
        } else {
            self.set_out(p, batch, grant)
        }
    }

    /// `SnapshotCache::attach`.
    fn remind(&mut self, p: usize, batch: &mut [Request]) {
        let cache = &mut self.processes[p].cache;
        for request in batch.iter_mut() {
            let known = if self.model.variant == Variant::SnapshotKept { cache[request.key].clone() } else { cache[request.key].take() };
            request.request.cached = known.or(request.request.cached.take());
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
        // A partition that a broken move has set back has fewer commits than its processes know.
        let file_version = self.model.store.commits.wrapping_sub(self.processes[p].commits);
        self.processes[p].file_version = Some(file_version);
        file_version
    }

    /// Begins a commit under locks.
    fn set_out(&mut self, p: usize, batch: Vec<Request>, grant: Option<SessionId>) -> Result<(), Broken> {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        if touches & self.locked() != 0 {
            self.processes[p].queue.splice(0..0, batch);
            return Ok(());
        }
        self.file_version(p);
        match self.model.begin(batch.clone(), self.clock(p), grant, Way::Locked) {
            Ok(commit) => self.processes[p].commits_in_flight.push(commit),
            Err(Err(Stop::Broken(broken))) => return Err(broken),
            Err(_) => self.put_back(p, batch),
        }
        Ok(())
    }

    /// The instances that transactions have locked, one bit each.
    pub fn locked(&self) -> u8 {
        let adrift = self.adrift.iter().map(|(_, commit)| commit.locks);
        self.processes
            .iter()
            .flat_map(|process| &process.commits_in_flight)
            .map(|commit| commit.locks)
            .chain(adrift)
            .fold(0, |all, one| all | one)
    }

    /// `Engine::carry_out`: a batch that was read without a lock is decided, or a decided batch is written, and the commit ends.
    pub fn finish(&mut self, p: usize, which: usize, end: End) -> Result<(), Broken> {
        let Some(n) = which.checked_rem(self.processes[p].commits_in_flight.len()) else { return Ok(()) };
        let commit = self.processes[p].commits_in_flight.remove(n);
        let (is_ahead, is_undecided) = (matches!(commit.way, Way::Ahead(_)), commit.is_undecided());
        if is_ahead && !is_undecided && self.locked() != 0 {
            // Another process holds the write lock.
            self.processes[p].commits_in_flight.push(commit);
            return Ok(());
        }
        match end {
            End::Commits if is_undecided => self.decide(p, n, commit),
            End::AnswerLost if is_undecided => {
                self.put_back(p, commit.batch);
                Ok(())
            }
            End::Fails => {
                self.put_back(p, commit.batch);
                Ok(())
            }
            // The write lock is released with the commit, whether or not this process learns its outcome.
            End::AnswerLost if is_ahead => {
                self.put_back(p, commit.batch.clone());
                self.commit(p, commit).map(drop)
            }
            End::AnswerLost => {
                self.put_back(p, commit.batch.clone());
                self.adrift.push((p, commit));
                Ok(())
            }
            End::Commits => {
                let (batch, way, grant) = (commit.batch.clone(), commit.way, commit.grant);
                let seen = commit.with(|shared| shared.seen.clone());
                match self.commit(p, commit)? {
                    None if way != Way::Locked => return self.set_out(p, batch, grant),
                    None => self.put_back(p, batch),
                    Some(commit_outcomes) => {
                        // The transaction of a verb is not a commit of the committer.
                        self.processes[p].commits += u64::from(!batch.iter().any(|request| request.own_tx));
                        self.renew_beside(p);
                        return self.conclude(p, batch, commit_outcomes, &seen);
                    }
                }
                Ok(())
            }
        }
    }

    /// A commit without locks reads the rest and decides.
    fn decide(&mut self, p: usize, n: usize, mut commit: Commit) -> Result<(), Broken> {
        match self.model.go_on(&mut commit, 0, 0) {
            Poll::Pending => {
                if matches!(commit.way, Way::Ahead(_)) && self.model.variant == Variant::FileVersionReadLater {
                    let file_version = self.file_version(p);
                    commit.read_file_version_again(file_version);
                }
                self.processes[p].commits_in_flight.insert(n, commit);
            }
            Poll::Ready(Err(Stop::Broken(broken))) => return Err(broken),
            Poll::Ready(_) => return self.set_out(p, commit.batch, commit.grant),
        }
        Ok(())
    }

    /// The transaction commits. Returns `None` if nothing was written, and the batch is decided again.
    fn commit(&mut self, p: usize, mut commit: Commit) -> Result<Option<Vec<CommitOutcome>>, Broken> {
        let (locked, file_version) = (self.locked(), self.file_version(p));
        let before = (self.model.store.clone(), self.model.ledger.clone());
        let ended = match self.model.go_on(&mut commit, locked, file_version) {
            Poll::Ready(Err(Stop::Broken(broken))) => return Err(broken),
            Poll::Ready(Ok(outcomes)) => outcomes,
            Poll::Ready(Err(Stop::ConcurrentChange)) => None,
            Poll::Pending => unreachable!("a commit that has decided ends"),
        };
        let is_late = |outcome: &CommitOutcome| !matches!(outcome.reply, Some(Ok(Reply::Completed { counted: true })));
        let Some(commit_outcomes) = ended else {
            (self.model.store, self.model.ledger) = before;
            return Ok(None);
        };
        if commit.batch[0].own_tx && is_late(&commit_outcomes[0]) {
            // If a verb with a transaction of its own reports too late, everything is rolled back, including the history entry of the late
            // report.
            (self.model.store, self.model.ledger) = before;
        } else if matches!(commit.way, Way::Ahead(_)) {
            self.check_refusals(&commit, &commit_outcomes, before)?;
        }
        self.model.store.commits += 1;
        self.model.is_dirty = true;
        self.processes[p].halves.extend(commit.with(|shared| std::mem::take(&mut shared.halves)));
        Ok(Some(commit_outcomes))
    }

    /// Only the file version guards a refusal: checks that it would still be refused.
    fn check_refusals(&mut self, commit: &Commit, commit_outcomes: &[CommitOutcome], before: (Store, Ledger)) -> Result<(), Broken> {
        let refused: Vec<_> = commit.batch.iter().zip(commit_outcomes).filter(|(_, one)| matches!(one.reply, Some(Err(_)))).collect();
        if refused.is_empty() {
            return Ok(());
        }
        let after = (std::mem::replace(&mut self.model.store, before.0), std::mem::replace(&mut self.model.ledger, before.1));
        for (request, _) in refused {
            match self.model.refuses(request, commit.now()) {
                Ok(true) | Err(Stop::ConcurrentChange) => {}
                Ok(false) => {
                    let key = KEYS[request.key];
                    return Promise::RefusedForAReason.broken(format!("a sender to `{key}` is refused, and nothing is why"));
                }
                Err(Stop::Broken(broken)) => return Err(broken),
            }
        }
        (self.model.store, self.model.ledger) = after;
        Ok(())
    }

    /// A commit whose process no longer waits for it reaches the database, or does not.
    pub fn land(&mut self, which: usize, commits: bool) -> Result<(), Broken> {
        let Some(n) = which.checked_rem(self.adrift.len()) else { return Ok(()) };
        let (p, commit) = self.adrift.remove(n);
        if commits && self.is_up {
            self.commit(p, commit)?;
        }
        Ok(())
    }

    /// `Engine::put_back`. The report of a verb with a transaction of its own becomes a failure, as in `Engine::report`.
    pub fn put_back(&mut self, p: usize, batch: Vec<Request>) {
        for mut request in batch {
            if request.own_tx {
                self.report_failure(p, &request);
                continue;
            }
            let tries = request.request.tries;
            request.request.put_back();
            if self.model.variant == Variant::RepeatWithoutLooking && matches!(request.request.kind, RequestKind::Send(_)) {
                request.request.tries = tries;
            }
            self.processes[p].queue.push(request);
        }
    }

    fn report_failure(&mut self, p: usize, request: &Request) {
        let Some(report) = request.report() else { return };
        let problem = Problem { error: "the verb's transaction was not committed".into(), advice: RetryAdvice::Default };
        let ended = (Attempt::clone(&report.attempt), Outcome::Failure(problem));
        self.report(p, request.key, ended, request.origin);
    }

    /// `Engine::conclude`.
    fn conclude(&mut self, p: usize, batch: Vec<Request>, commit_outcomes: Vec<CommitOutcome>, seen: &[RowSnapshot]) -> Result<(), Broken> {
        for (mut request, commit_outcome) in batch.into_iter().zip(commit_outcomes) {
            let Some(reply) = commit_outcome.reply else {
                let used =
                    request.request.cached_snapshot(None).or(seen.iter().find(|seen| seen.instance.key == KEYS[request.key])).cloned();
                match commit_outcome.is_stale {
                    true => request.request.put_back_stale(),
                    false => request.request.put_back(),
                }
                if self.model.variant == Variant::StaleUsedAgain && commit_outcome.is_stale {
                    self.use_again(&mut request, used);
                }
                self.processes[p].queue.push(request);
                continue;
            };
            for run in &commit_outcome.runs {
                match self.model.store.calls.get(&(run.attempt.call, run.attempt.number)).map(|row| row.grant) {
                    Some(grant) => self.run(p, Attempt::clone(&run.attempt), grant)?,
                    // This engine answers what it did not write.
                    None if self.model.variant == Variant::StaleAnswered => {}
                    None => {
                        let verb = &run.attempt.verb;
                        return Promise::NoRunWithoutAnInstance.broken(format!("an attempt of `{verb}` begins, and is not stored"));
                    }
                }
            }
            if self.model.variant != Variant::StaleAnswered {
                let is_kept = |moved: &&ChangedInstance| {
                    self.model.variant == Variant::SnapshotOfAReceiverKept && moved.target != request.request.target
                };
                let moved: Vec<_> = commit_outcome.moved.iter().filter(|moved| !is_kept(moved)).collect();
                moved.into_iter().for_each(|moved| self.remember(p, moved));
            }
            if let Some(sending) = request.delivery {
                self.processes[p].answers.insert(sending.number, answer_to(&reply));
            }
            match (&request.request.kind, reply) {
                (RequestKind::Complete(_), Ok(Reply::Completed { counted: false })) if request.own_tx => self.report_failure(p, &request),
                (RequestKind::Complete(report), _) => {
                    let (call, number) = (report.attempt.call, report.attempt.number);
                    if matches!(request.origin, Origin::Verb(_) | Origin::ShutDown) {
                        self.processes[p].running.retain(|running| (running.attempt.call, running.attempt.number) != (call, number));
                    }
                }
                (_, Ok(Reply::Sent { call, .. })) => self.model.ledger.told.push(call),
                _ => {}
            }
        }
        Ok(())
    }

    /// `Engine::remember`.
    fn remember(&mut self, p: usize, moved: &ChangedInstance) {
        let cached = moved.cached(|| moved.instance.newest.is_some_and(|newest| self.processes[p].runs(newest)));
        if self.model.variant != Variant::SnapshotKept || cached.is_some() {
            self.processes[p].cache[key_index(&moved.target.key)] = cached;
        }
    }

    /// Decides a stale request again on the snapshot that was stale, with the current row version.
    fn use_again(&mut self, request: &mut Request, used: Option<RowSnapshot>) {
        let Some(mut used) = used else { return };
        let Some(now) = self.model.store.instances.get(&used.instance.id) else { return };
        Arc::make_mut(&mut used.instance).row_version = now.row_version;
        request.request.takes_locks = false;
        request.request.cached = Some(CachedSnapshot::RowSnapshot(used));
    }

    /// `Engine::run`.
    pub fn run(&mut self, p: usize, attempt: Attempt, grant: u64) -> Result<(), Broken> {
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
