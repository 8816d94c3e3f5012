//! The worker: runs claimed attempts, calls their verbs and reports the outcomes.

mod blocking;
mod bounded;
mod calling;
mod counts;
mod problem;

use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::call::Attempt;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome::TraceOfCall;
use fsm_core::commit::request::{Reply, Report, RequestKind};
use fsm_core::ids::CallId;
use fsm_core::outcome::{Outcome, Problem};
use fsm_core::retry::RetryAdvice;
use fsm_store::claim::Claimed;
use fsm_store::tx::Tx;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::Instrument;

use crate::committer::request::{self, Request, to_decide};
use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::guard;
use crate::metrics::AttemptOutcome;
use crate::progress::ProgressOfAttempt;
use crate::running::{self, Phase, Running};
use crate::supervise;
use crate::traces;

/// The wait before the report of an attempt is retried after a panic.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

/// Shared by the engine and a running verb: the request to end, and the progress.
type VerbControl = (Arc<watch::Sender<bool>>, Arc<ProgressOfAttempt>);

/// The outcome of a verb, with the transaction that the verb opened, if any.
struct Ended {
    outcome: Outcome,
    /// The same for the metrics, which distinguish a timeout and a panic from other errors.
    counts_as: AttemptOutcome,
    tx: Option<Tx>,
}

impl Engine {
    /// Starts a claimed attempt in its slot.
    pub(crate) fn run(self: &Arc<Self>, target: InstanceKey, claimed: Claimed, permit: Option<OwnedSemaphorePermit>) {
        let Some(work) = &self.work else { return };
        let (attempt, fair_by) = (Arc::clone(&claimed.attempt), claimed.instance.fair_by.clone());
        let cancel = Arc::new(watch::Sender::new(false));
        // The span has no parent: the previous attempt may have ended in this very task, and consecutive attempts are not nested.
        let span = span_of(&attempt, &target);
        // The lock is held until the entry is inserted, so that an attempt cannot be removed before that.
        let mut running = work.running();
        let progress = ProgressOfAttempt::begun();
        let control = (Arc::clone(&cancel), Arc::clone(&progress));
        // In a box of its own, because the future is large and is moved into the task.
        let executing = Box::pin(Arc::clone(self).execute_in(span, target.clone(), claimed, permit, control));
        let task = tokio::spawn(Arc::clone(self).supervise(target.clone(), Arc::clone(&attempt), executing));
        let id = (attempt.call, attempt.number);
        let abort = task.abort_handle();
        running.insert(id, Running { attempt, target, fair_by, abort, cancel, progress, phase: Phase::Executing, unreported: None });
    }

    /// Executes the attempt in its span, which follows the span of the sender or of the attempt before.
    async fn execute_in(
        self: Arc<Self>,
        span: tracing::Span,
        target: InstanceKey,
        mut claimed: Claimed,
        permit: Option<OwnedSemaphorePermit>,
        control: VerbControl,
    ) {
        // An attempt that a scan claimed has it already.
        self.read_traces(slice::from_mut(&mut claimed)).await;
        if let TraceOfCall::Known(Some(followed)) = &claimed.trace {
            traces::follow(&span, followed, self.work.as_ref().is_some_and(|work| work.has_parent_from_send));
        }
        // A span that was entered keeps its parent, so nothing enters it before.
        span.in_scope(|| tracing::debug!("claimed"));
        self.execute(target, claimed, permit, control).instrument(span).await;
    }

    async fn execute(self: Arc<Self>, target: InstanceKey, claimed: Claimed, permit: Option<OwnedSemaphorePermit>, control: VerbControl) {
        let attempt = Arc::clone(&claimed.attempt);
        tracing::debug!("started");
        let metrics = self.catalog.get(&attempt.machine).and_then(|known| known.metrics(&attempt.verb));
        let begun = Instant::now();
        if let Some(metrics) = metrics {
            metrics.attempt_started(self.clock.now().since(attempt.scheduled_at));
        }
        let Ended { outcome, counts_as, tx } = self.call_verb(claimed, control).await;
        if !self.may_report((attempt.call, attempt.number)) {
            return;
        }
        if let Some(metrics) = metrics {
            metrics.verb_took(begun.elapsed());
            metrics.attempt_ended(counts_as);
        }
        match &outcome {
            Outcome::Failure(problem) => tracing::debug!(outcome = outcome.word(), error = problem.error, "ended"),
            outcome => tracing::debug!(outcome = outcome.word(), "ended"),
        }
        let span = tracing::Span::current();
        span.record("otel.status_code", if matches!(outcome, Outcome::Failure(_)) { "ERROR" } else { "OK" });
        let mut report = Report { trace: traces::context_of(&span), ..request::report(Arc::clone(&attempt), Outcome::Released) };
        report.outcome = self.encrypted(&target, report.fresh, outcome);
        self.end(&target, &attempt, report, permit, tx).await;
    }

    async fn end(
        self: &Arc<Self>,
        target: &InstanceKey,
        attempt: &Attempt,
        report: Report,
        permit: Option<OwnedSemaphorePermit>,
        tx: Option<Tx>,
    ) {
        let is_reported = self.report(target.clone(), report, permit, tx).await;
        self.watchers.ended(target, (attempt.call, attempt.number));
        // If the outcome is not stored, the entry stays. Otherwise the sweeper would treat the attempt as held but not running, and release
        // it.
        if let Some(work) = self.work.as_ref().filter(|_| is_reported) {
            work.running().remove(&(attempt.call, attempt.number));
            work.ended.notify_waiters();
            if let Some(bucket) = &attempt.limit {
                self.note_place_free(bucket, attempt.instance);
            }
        }
    }

    /// Records that the verb has ended. Returns `false` if a shutdown has released the attempt, so that its outcome must be dropped.
    fn may_report(&self, id: (CallId, u32)) -> bool {
        let Some(work) = &self.work else { return true };
        let mut running = work.running();
        let Some(running) = running.get_mut(&id) else { return true };
        if running.phase == Phase::Executing {
            running.phase = Phase::Ended;
        }
        running.phase == Phase::Ended
    }

    /// Runs the task of an attempt. A panic of the engine's own code around the verb is a failed attempt too, and is reported until the
    /// report is stored.
    async fn supervise(self: Arc<Self>, target: InstanceKey, attempt: Arc<Attempt>, executing: Pin<Box<impl Future<Output = ()> + Send>>) {
        let mut ended = guard::to_its_end("the attempt's task", executing).await;
        while let Err(text) = ended {
            supervise::log_panic("attempt", &text);
            if !self.may_report((attempt.call, attempt.number)) {
                return;
            }
            let problem = self.data_protection.problem(&attempt.machine, &attempt.verb, &text, RetryAdvice::Default);
            let mut report = request::report(Arc::clone(&attempt), Outcome::Released);
            report.outcome = self.encrypted(&target, report.fresh, Outcome::Failure(problem));
            ended = guard::to_its_end("the report of it", Box::pin(self.end(&target, &attempt, report, None, None))).await;
            if ended.is_err() {
                tokio::time::sleep(BETWEEN_REPORTS).await;
            }
        }
    }

    /// Encrypts the outcome for storage. If that fails, the outcome is a failed attempt.
    fn encrypted(&self, target: &InstanceKey, fresh: CallId, outcome: Outcome) -> Outcome {
        let owner = Owner { machine: &target.machine, key: &target.key };
        self.data_protection
            .encrypt_outcome(owner, outcome, fresh)
            .unwrap_or_else(|why| Outcome::Failure(Problem::new(&format!("its end cannot be stored: {why}"), RetryAdvice::Default)))
    }

    /// Reports the outcome, and returns true if it is stored. A success is committed in the verb's own transaction if there is one. All
    /// other reports go through the committer, which retries them as long as the process lives.
    async fn report(
        self: &Arc<Self>,
        target: InstanceKey,
        mut report: Report,
        mut permit: Option<OwnedSemaphorePermit>,
        tx: Option<Tx>,
    ) -> bool {
        if let Some(tx) = tx.filter(|_| matches!(report.outcome, Outcome::Success { .. })) {
            let attempt = Arc::clone(&report.attempt);
            let request = Request::new(target.clone(), RequestKind::Complete(Box::new(report)), None).with_permit(permit.take());
            match Box::pin(self.complete_in(tx, request)).await {
                Ok(()) => return true,
                // The verb's own statements were rolled back, so this attempt did not succeed. If the commit took effect nevertheless, the
                // guards reject the new report.
                Err(error) => report = self.undone(&target, attempt, &error),
            }
        }
        match self
            .request(|reply| Request::new(target.clone(), RequestKind::Complete(Box::new(report)), Some(reply)).with_permit(permit))
            .await
        {
            Ok(Reply::Completed { counted: false }) => {
                tracing::info!("reported late: the attempt was closed before, and nothing changed");
                true
            }
            Ok(_) => true,
            Err(error) if error.is_stopping() => false,
            // The report was committed, and code of this process panicked afterwards.
            Err(error) if error.is_interrupted() => true,
            Err(error) => {
                tracing::error!(%error, "the end of an attempt was refused; other workers find it lost once this process has ended");
                false
            }
        }
    }

    /// The report of an attempt whose verb succeeded, but whose transaction was not committed.
    fn undone(&self, target: &InstanceKey, attempt: Arc<Attempt>, error: &Error) -> Report {
        let why = format!("the verb's transaction was not committed: {error}");
        let problem = self.data_protection.problem(&attempt.machine, &attempt.verb, &why, RetryAdvice::Default);
        let report = request::report(attempt, Outcome::Released);
        Report { outcome: self.encrypted(target, report.fresh, Outcome::Failure(problem)), ..report }
    }

    /// Completes an attempt in the transaction of its verb, as a batch of one request.
    async fn complete_in(self: &Arc<Self>, mut tx: Tx, request: Request) -> Result<(), Error> {
        let _under_way = self.in_flight.begin();
        let batch = vec![request];
        tx.take_back().await?;
        let commit_outcomes = self.batch_commit().of(&mut tx.conn(), &to_decide(&batch)).await?;
        // The transaction contains the verb's statements, so a failure must not be committed in it.
        if let Some(problem) = &commit_outcomes[0].refused {
            return Err(Error::input(problem.error.clone()));
        }
        if !matches!(commit_outcomes[0].reply, Some(Ok(Reply::Completed { counted: true }))) {
            return Err(Error::other(ErrorKind::Contended, "the attempt was closed before, by the sweeper or an operator"));
        }
        tx.commit().await?;
        self.conclude(batch, commit_outcomes);
        Ok(())
    }

    /// Cancels the verb of an instance's call through `ctx.cancelled()` if it runs in this process.
    pub(crate) fn cancel_running(&self, target: &InstanceKey) {
        if let Some(work) = &self.work {
            let wanted: Vec<_> = work.running().values().filter(|running| running.target == *target).map(Running::canceller).collect();
            wanted.into_iter().for_each(running::cancel);
        }
    }

    /// Stops claiming, waits up to `patience` for running attempts, and releases those whose verb has not ended by then.
    ///
    /// The releases themselves have no time limit here, because the database may be unavailable. The shutdown that calls this function
    /// limits them.
    pub(crate) async fn drain(self: &Arc<Self>, patience: Duration) {
        let Some(work) = &self.work else { return };
        self.stop_starting();
        let all_ended = async {
            loop {
                let ended = work.ended.notified();
                if work.running().is_empty() {
                    // A commit that was in flight when the shutdown began may still start a call here.
                    self.in_flight.finish_current().await;
                    if work.running().is_empty() {
                        return;
                    }
                    continue;
                }
                // Limited by the timeout around this block.
                ended.await;
            }
        };
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            self.in_flight.finish_current().await;
            futures_util::future::join_all(self.released().into_iter().map(|(target, attempt)| self.give_back(target, attempt))).await;
        }
    }

    /// Aborts the verbs that still run and returns their attempts. An attempt whose verb has ended is being reported and is left alone.
    fn released(&self) -> Vec<(InstanceKey, Arc<Attempt>)> {
        let Some(work) = &self.work else { return Vec::new() };
        let mut running = work.running();
        let executing = running.values_mut().filter(|running| running.phase == Phase::Executing);
        let released = executing.map(|running| {
            running.phase = Phase::Released;
            running.abort.abort();
            (running.target.clone(), Arc::clone(&running.attempt))
        });
        released.collect()
    }

    async fn give_back(self: &Arc<Self>, target: InstanceKey, attempt: Arc<Attempt>) {
        if let Some(metrics) = self.catalog.get(&attempt.machine).and_then(|known| known.metrics(&attempt.verb)) {
            metrics.attempt_ended(AttemptOutcome::Released);
        }
        let id = (attempt.call, attempt.number);
        let report = request::report(attempt.clone(), given_back(&attempt));
        let kind = RequestKind::Complete(Box::new(report));
        match self.request(|reply| Request::new(target, kind, Some(reply))).await {
            // The entry is removed only now. Otherwise the sweeper would treat the attempt as held but not running.
            Ok(_) => drop(self.work.as_ref().and_then(|work| work.running().remove(&id))),
            Err(error) => tracing::warn!(%error, "an attempt could not be released; other workers find it lost"),
        }
    }
}

/// The span of an attempt. The fields `machine` to `attempt` are those of log lines, the others those of traces.
fn span_of(attempt: &Attempt, target: &InstanceKey) -> tracing::Span {
    tracing::info_span!(
        parent: None,
        "fsm.attempt",
        machine = attempt.machine,
        key = &*target.key,
        verb = attempt.verb,
        call = %attempt.call,
        attempt = attempt.number,
        otel.kind = "consumer",
        otel.status_code = tracing::field::Empty,
        fsm.machine = attempt.machine,
        fsm.key = &*target.key,
        fsm.verb = attempt.verb,
        fsm.event = attempt.event,
        fsm.from = attempt.from,
        fsm.to = attempt.to,
        // OpenTelemetry has signed numbers only, and would get others as texts.
        fsm.attempt = i64::from(attempt.number),
        fsm.max_attempts = attempt.retry_state.max_attempts(attempt.number).map(i64::from),
    )
}

/// The outcome of an attempt that a shutdown ends. Without a retry policy it is never run again, because its progress is unknown.
fn given_back(attempt: &Attempt) -> Outcome {
    match attempt.retry_state.policy {
        Some(_) => Outcome::Released,
        None => {
            Outcome::Failure(Problem { error: "its process was shut down before the verb ended".to_owned(), advice: RetryAdvice::Never })
        }
    }
}
