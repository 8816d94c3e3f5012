//! Calls a verb: decrypts its input, runs it within its bounds, and turns its result into the outcome of the attempt.

use std::borrow::Cow;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::instance::Instance;
use fsm_core::outcome::Outcome;
use fsm_store::claim::Claimed;
use fsm_store::held;
use tokio::sync::watch;

use super::blocking::{Returned, on_a_thread};
use super::bounded::{Bounds, bounded};
use super::{Ended, VerbControl};
use crate::catalog::KnownMachine;
use crate::context::{Ctx, RunningVerb, VerbEnvironment};
use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::failure::{Failure, Unreadable};
use crate::guard;
use crate::metrics::AttemptOutcome;
use crate::registry::{self, Input, Run, VerbEntry};

/// The decrypted payload and record.
pub(super) type Opened<'b> = (Cow<'b, [u8]>, Option<Cow<'b, [u8]>>);

impl Engine {
    pub(super) async fn call_verb(self: &Arc<Self>, claimed: Claimed, (cancel, progress): VerbControl) -> Ended {
        let Claimed { instance, attempt, payload, last_error, policy_error, seen: _, trace: _ } = claimed;
        let known = self.catalog.get(&attempt.machine);
        let Some((known, verb)) = known.and_then(|known| Some((known, known.verb(&attempt.verb)?))) else {
            // Attempts are claimed only for verbs that this program has. If the verb is missing nevertheless, another worker runs it.
            return Ended { outcome: Outcome::Released, counts_as: AttemptOutcome::Released, tx: None };
        };
        let owner = Owner { machine: &attempt.machine, key: &instance.key };
        let last_error = last_error.map(|error| self.data_protection.open_error(owner, &error).into_owned());
        let opened = policy_error.map_or_else(|| self.opened(known, &instance, &attempt, &payload), Err);
        let opened = self.with_counts(&attempt, opened).await;
        let control = (Arc::clone(&progress), matches!(verb.run, Run::Blocking(_)));
        let mut running =
            Some(RunningVerb::new(self.environment(known), Arc::clone(&attempt), &instance, last_error, cancel.subscribe(), control));
        let (ended, counts_as) = match &opened {
            Ok((payload, record)) => {
                let bounds = Bounds { timeout: verb.timeout, heartbeat: verb.heartbeat, progress: &progress };
                let input = Input { event: payload, record: record.as_deref() };
                let (ended, counts_as) = self.run_bounded(verb, &mut running, input, bounds, &cancel).await;
                let computed = ended.map(|kept| {
                    let timer = known.computed_timer(&attempt, kept.as_deref().or(record.as_deref()))?;
                    let search = known.changed_search(record.as_deref(), kept.as_deref())?;
                    Ok((kept, timer, search))
                });
                match computed {
                    Ok(Err(failure)) => (Err(failure), AttemptOutcome::Error),
                    Ok(Ok(ended)) => (Ok(ended), counts_as),
                    Err(failure) => (Err(failure), counts_as),
                }
            }
            Err(why) => (Err(Failure::new(Unreadable(why.clone()))), AttemptOutcome::Error),
        };
        let snoozed = ended.as_ref().err().and_then(Failure::snoozes_for);
        let outcome = match (ended, snoozed) {
            (Ok((record, timer, search)), _) => {
                let verb_requests = running.as_mut().map(RunningVerb::take_requests).unwrap_or_default();
                Outcome::Success { record, verb_requests, timer, search }
            }
            (Err(_), Some(wait)) => Outcome::Snoozed { wait },
            (Err(failure), None) => {
                let is_unreadable = failure.is_unreadable();
                let problem = self.problem_of(known, verb, &attempt, failure);
                if is_unreadable {
                    tracing::warn!(error = problem.error, "an attempt failed without its verb: this program cannot read a stored value");
                }
                Outcome::Failure(problem)
            }
        };
        let tx = running.as_mut().and_then(RunningVerb::take_tx);
        Ended { outcome, counts_as, tx }
    }

    /// Calls the verb within its bounds: in this task, or on a thread if it blocks. If the thread has not returned by then, `running` is gone.
    async fn run_bounded(
        &self,
        verb: &VerbEntry,
        running: &mut Option<RunningVerb>,
        input: Input<'_>,
        bounds: Bounds<'_>,
        cancel: &watch::Sender<bool>,
    ) -> (registry::Ended, AttemptOutcome) {
        let Some(mut owned) = running.take() else { unreachable!("an attempt runs once") };
        match (verb.run, &self.work) {
            (Run::Blocking(run), Some(work)) => {
                let input = (input.event.to_vec(), input.record.map(<[u8]>::to_vec));
                let returned = Returned::default();
                let thread = on_a_thread(run, owned, input, Arc::clone(&work.blocking), Arc::clone(&returned));
                let ended = bounded(thread, bounds, cancel).await;
                *running = guard::lock(&returned).take();
                ended
            }
            (Run::Async(run), _) => {
                let ended = held::noting(bounded(run(&mut Ctx::new(&mut owned), input), bounds, cancel)).await;
                *running = Some(owned);
                ended
            }
            (Run::Blocking(_), None) => unreachable!("only a worker runs verbs"),
        }
    }

    /// Decrypts the payload and the record for the verb.
    fn opened<'b>(&self, known: &KnownMachine, instance: &'b Instance, attempt: &Attempt, payload: &'b [u8]) -> Result<Opened<'b>, String> {
        let owner = Owner::of(instance);
        let payload = self.data_protection.open_payload(owner, attempt, known.is_of_engine(attempt), payload);
        let record = instance.record.as_ref().map(|record| self.data_protection.open(&owner.record(), record)).transpose();
        let payload = payload.map_err(|why| format!("the payload cannot be read: {why}"))?;
        Ok((payload, record.map_err(|why| format!("the record cannot be read: {why}"))?))
    }

    fn environment(&self, known: &KnownMachine) -> VerbEnvironment {
        VerbEnvironment {
            store: self.store.clone(),
            clock: self.clock.clone(),
            limits: self.limits,
            data_protection: self.data_protection.clone(),
            data: self.work.as_ref().map(|work| work.data.clone()).unwrap_or_default(),
            machine: Arc::clone(&known.machine),
            events: Arc::clone(&known.events),
            served: Arc::clone(&self.catalog.names),
            partition: self.partition,
            stores: self.stores.get().cloned(),
            has_progress: self.work.as_ref().map(|work| Arc::clone(&work.progress)).unwrap_or_default(),
        }
    }
}
