//! `crash_at_every_point`: runs a scenario once for each crash point. Every run must end like one without a crash.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use fsm_store::sessions;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use super::bed::TestBed;
use super::effects::Effects;
use super::end::{FinalState, Ignoring};
use crate::error::{Error, ErrorKind};
use crate::guard;

/// The number of crashes that made no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crashes {
    /// The number of crash points: before each statement, after each commit, before and after each effect.
    pub points: u32,
}

/// A crash test, which runs when it is awaited.
#[must_use = "nothing is run until it is awaited"]
pub struct CrashTest<'b, S> {
    bed: &'b TestBed,
    scenario: S,
    ignoring: Vec<Ignoring<'b>>,
}

impl<'b, S> CrashTest<'b, S> {
    /// Changes each record before it is compared, for fields that legitimately differ after a crash, such as the time of an attempt. The record
    /// is the JSON that is stored; `change` gets those of all machines.
    ///
    /// ```
    /// # use fsm_runtime::testing::TestBed;
    /// # async fn test(bed: &TestBed) {
    /// bed.crash_at_every_point(async |bed| bed.run_until_idle().await)
    ///     .ignoring(|record| record["checked_at"] = serde_json::Value::Null)
    ///     .await;
    /// # }
    /// ```
    pub fn ignoring(mut self, change: impl Fn(&mut Value) + 'b) -> Self {
        self.ignoring.push(Box::new(change));
        self
    }
}

impl<'b, T, F, S> IntoFuture for CrashTest<'b, S>
where
    S: Fn(Arc<TestBed>) -> F + 'b,
    T: PartialEq + fmt::Debug,
    F: Future<Output = T>,
{
    type Output = Crashes;
    type IntoFuture = LocalBoxFuture<'b, Crashes>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.bed.crash(self.scenario, &self.ignoring).await })
    }
}

/// A crash after which the end was different.
struct Differs {
    point: u32,
    place: String,
    why: Vec<String>,
}

/// The maximum number of retries for which the clock is moved. More than that means that the retries do not end.
const MOST_RETRIES: u32 = 1000;

impl TestBed {
    /// Runs `scenario` once without a crash, and once for each point at which the process could die: before each statement, after each
    /// commit, and before and after each of the [`Effects`] that the test bed has as data. Each run has a fresh database of the same kind
    /// as this test bed's.
    ///
    /// After a crash, a new process starts on the same database. The running attempts of the dead process are lost at once, without waiting
    /// for the end of its lease, so that no timer fires meanwhile. Their retries become due. Then the scenario runs again from its
    /// beginning, as if by a caller that never received an answer. Its sends therefore need deduplication ids. In the scenario, assert the
    /// final result, not the way to it.
    ///
    /// After a run with a crash, every instance must have the same status, state, record, inbox and timers as after the run without one.
    /// The scenario must return the same result, each effect must have happened the same number of times, and no invariant may be broken.
    ///
    /// # Panics
    ///
    /// If a run ends differently; the message names the crash point and the differences. Also if the database fails.
    ///
    /// Also on a test bed that was started [`on`](super::TestBedBuilder::on) an existing database, because that cannot be created afresh.
    pub fn crash_at_every_point<T, F, S>(&self, scenario: S) -> CrashTest<'_, S>
    where
        S: Fn(Arc<TestBed>) -> F,
        T: PartialEq + fmt::Debug,
        F: Future<Output = T>,
    {
        CrashTest { bed: self, scenario, ignoring: Vec::new() }
    }

    async fn crash<T, F>(&self, scenario: impl Fn(Arc<TestBed>) -> F, ignoring: &[Ignoring<'_>]) -> Crashes
    where
        T: PartialEq + fmt::Debug,
        F: Future<Output = T>,
    {
        let plain = self.run(None, &scenario, ignoring).await.unwrap_or_else(|error| panic!("the scenario does not run: {error}"));
        let Run::Ended(plain) = plain else { panic!("the scenario died without a crash") };
        for point in 0.. {
            let run = self.run(Some(point), &scenario, ignoring).await.unwrap_or_else(|error| panic!("the scenario does not run: {error}"));
            let (place, why) = match run {
                // The scenario ended before this crash point.
                Run::Ended(_) => return Crashes { points: point },
                Run::Resumed { place, end } => (place, end.differs_from(&plain)),
                Run::Panicked { place, text } => (place, vec![panicked(&text)]),
            };
            if !why.is_empty() {
                panic!("{}", Differs { point, place, why });
            }
        }
        unreachable!("a scenario has fewer crash points than there are numbers")
    }

    /// Runs the scenario on a fresh database, with a crash at `point` if there is one.
    async fn run<T, F>(&self, point: Option<u32>, scenario: &impl Fn(Arc<TestBed>) -> F, ignoring: &[Ignoring<'_>]) -> Result<Run, Error>
    where
        T: PartialEq + fmt::Debug,
        F: Future<Output = T>,
    {
        let bed = Arc::new(self.another().await?);
        let effects = bed.effects();
        let failpoint = bed.engine().store.failpoint().clone();
        if let Some(effects) = &effects {
            effects.begin_anew(failpoint.clone());
        }
        let dead: Vec<_> = bed.engines.work().map(|work| work.session.id()).collect();
        let saying = AssertUnwindSafe(scenario(Arc::clone(&bed))).catch_unwind();
        let mut said = match point {
            None => Some(saying.await),
            Some(point) => bed.cut_after(point, saying).await,
        };
        let place = failpoint.triggered_at().filter(|_| point.is_some());
        if let Some(place) = &place {
            for (lease_keeper, dead) in bed.lease_keepers.iter().zip(dead) {
                sessions::leave(&mut lease_keeper.lock().await.conn(), dead).await?;
            }
            bed.catch_up().await?;
            said = match AssertUnwindSafe(scenario(Arc::clone(&bed))).catch_unwind().await {
                Ok(answer) => Some(Ok(answer)),
                Err(panic) => return Ok(Run::Panicked { place: place.clone(), text: guard::text_of(panic) }),
            };
        }
        let answer = match said {
            Some(Ok(answer)) => format!("{answer:?}"),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("a scenario that did not die was heard to its end"),
        };
        bed.catch_up().await?;
        let effects = effects.map(|effects| effects.all()).unwrap_or_default();
        let broken = bed
            .check_invariants()
            .await
            .into_iter()
            .map(|broken| format!("{} does not hold: {}", broken.says, broken.rows.join(", ")))
            .collect();
        let mut instances = BTreeMap::new();
        for engine in bed.engines.all() {
            instances.extend(FinalState::read(engine, ignoring).await?);
        }
        let end = FinalState { broken, instances, effects, answer };
        Ok(match place {
            Some(place) => Run::Resumed { place, end },
            None => Run::Ended(end),
        })
    }

    /// Runs all due work, and moves the clock as far as the retries of lost attempts require.
    async fn catch_up(&self) -> Result<(), Error> {
        for _ in 0..MOST_RETRIES {
            self.try_run_until_idle().await?;
            let mut next = None;
            for engine in self.engines.all() {
                let lost = sessions::next_after_loss(&mut engine.store.reader().await?.conn()).await?;
                next = [next, lost].into_iter().flatten().min();
            }
            let Some(next) = next else { return Ok(()) };
            self.try_advance(next.since(self.now())).await?;
        }
        Err(Error::other(ErrorKind::TimedOut, format!("attempts that were lost are retried for more than {MOST_RETRIES} times")))
    }

    fn effects(&self) -> Option<Effects> {
        let data = &self.engine().work.as_ref()?.data;
        data.has(TypeId::of::<Effects>()).then(|| Effects::clone(&data.get::<Effects>()))
    }
}

/// The end of one run of a scenario.
enum Run {
    /// There was no crash.
    Ended(FinalState),
    /// There was a crash at `place`.
    Resumed { place: String, end: FinalState },
    /// The scenario panicked when it ran again after a crash.
    Panicked { place: String, text: String },
}

fn panicked(text: &str) -> String {
    format!(
        "the scenario panicked when it ran again after the crash: {text} (a caller without an answer sends again: do its sends have dedup ids?)"
    )
}

impl fmt::Display for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process died at {} crash points, and the result was always the same", self.points)
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Differs { point, place, why } = self;
        write!(f, "the process died {place} (crash point {point}), another one took over, and the result differs:")?;
        why.iter().try_for_each(|why| write!(f, "\n  {why}"))
    }
}
