//! `crash_at_every_point`: a scenario is run once for each point at which the process could die, and has to end as if it had not.

use std::any::TypeId;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::bed::TestBed;
use super::effects::Effects;
use super::end::End;
use crate::error::{Error, ErrorKind};
use crate::guard;
use crate::store::sessions;

/// How often the process died, and it made no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crashes {
    /// How many borders there were: before each statement, after each commit, before and after each effect.
    pub borders: u32,
}

/// A death that made a difference.
struct Differs {
    border: u32,
    place: String,
    why: Vec<String>,
}

/// How often the clock is moved on to a retry before it is clear that there is no end to them.
const MOST_RETRIES: u32 = 1000;

impl TestBed {
    /// Runs `scenario` once as it is, and once for each point at which the process could die in it: before each statement, after
    /// each commit, and before and after each of the [`Effects`] that the bed has as data. Each run has a fresh database like this bed's.
    ///
    /// After a death a new process starts on the same database. What the dead one executed is lost at once (no lease has to run
    /// out, so that no timer does), retries come due, and the scenario is said again from its beginning, as by a caller who never
    /// heard an answer: so its sends want dedup ids. Assert the end in it, not how it came about.
    ///
    /// In the end, every instance stands where it does without a death, with the same record, and the same inbox and timers; the scenario
    /// gives the same; each effect happened as often; and no invariant is broken. Panics when not, and says at which border what was different.
    ///
    /// Panics also on a bed that was opened [`on`](super::TestBedBuilder::on) a database, for that cannot be made anew.
    pub async fn crash_at_every_point<T, F>(&self, scenario: impl Fn(Arc<TestBed>) -> F) -> Crashes
    where
        T: PartialEq + fmt::Debug,
        F: Future<Output = T>,
    {
        let plain = self.run(None, &scenario).await.unwrap_or_else(|error| panic!("the scenario does not run: {error}"));
        let Run::Ended(plain) = plain else { panic!("the scenario died without a death") };
        for border in 0.. {
            let run = self.run(Some(border), &scenario).await.unwrap_or_else(|error| panic!("the scenario does not run: {error}"));
            let (place, why) = match run {
                // It came to its end before so many borders.
                Run::Ended(_) => return Crashes { borders: border },
                Run::Resumed { place, end } => (place, end.differs_from(&plain)),
                Run::Panicked { place, text } => (place, vec![panicked(&text)]),
            };
            if !why.is_empty() {
                panic!("{}", Differs { border, place, why });
            }
        }
        unreachable!("a scenario has fewer borders than there are numbers")
    }

    /// On a fresh database, with a death at `border` if there is one.
    async fn run<T, F>(&self, border: Option<u32>, scenario: &impl Fn(Arc<TestBed>) -> F) -> Result<Run, Error>
    where
        T: PartialEq + fmt::Debug,
        F: Future<Output = T>,
    {
        let bed = Arc::new(self.another().await?);
        let effects = bed.effects();
        let fault = bed.engine.store.fault().clone();
        if let Some(effects) = &effects {
            effects.begin_anew(fault.clone());
        }
        let dead = bed.engine.work.as_ref().map(|work| work.session.id());
        let saying = AssertUnwindSafe(scenario(Arc::clone(&bed))).catch_unwind();
        let mut said = match border {
            None => Some(saying.await),
            Some(border) => bed.cut_after(border, saying).await,
        };
        let place = fault.struck_at().filter(|_| border.is_some());
        if let Some(place) = &place {
            if let Some(dead) = dead {
                sessions::leave(&mut bed.lease_keeper.lock().await.conn(), dead).await?;
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
        let end = End { broken, instances: End::read(&bed.engine).await?, effects, answer };
        Ok(match place {
            Some(place) => Run::Resumed { place, end },
            None => Run::Ended(end),
        })
    }

    /// Runs all that is due, and moves the clock on as far as the retries of lost attempts want it.
    async fn catch_up(&self) -> Result<(), Error> {
        for _ in 0..MOST_RETRIES {
            self.try_settle().await?;
            let next = {
                let mut reader = self.engine.store.reader().await?;
                sessions::next_after_loss(&mut reader.conn()).await?
            };
            let Some(next) = next else { return Ok(()) };
            self.try_advance(next.since(self.now())).await?;
        }
        Err(Error::other(ErrorKind::TimedOut, format!("attempts that were lost are retried for more than {MOST_RETRIES} times")))
    }

    fn effects(&self) -> Option<Effects> {
        let data = &self.engine.work.as_ref()?.data;
        data.has(TypeId::of::<Effects>()).then(|| Effects::clone(&data.get::<Effects>()))
    }
}

/// How a run of a scenario ended.
enum Run {
    /// Nobody died.
    Ended(End),
    /// After a death, here.
    Resumed { place: String, end: End },
    /// When it was said again after a death.
    Panicked { place: String, text: String },
}

fn panicked(text: &str) -> String {
    format!("said again, the scenario panicked: {text} (who never heard an answer asks again: do its sends have dedup ids?)")
}

impl fmt::Display for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process died at {} borders, and the end was always the same", self.borders)
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Differs { border, place, why } = self;
        write!(f, "the process died {place} (border {border}), another took over, and the end is not the same:")?;
        why.iter().try_for_each(|why| write!(f, "\n  {why}"))
    }
}
