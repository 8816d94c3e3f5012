//! Finds what is due: timers that ran out, and scheduled attempts. Polling is the truth; hints only make it prompt.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;

use crate::committer::request::{Request, What, Whose};
use crate::committer::retry::{backoff, is_worth_a_line};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::error::Class;
use crate::store::lock::Memory;
use crate::store::{claim, timers};

/// How often a process whose lease is not certain looks whether it is again.
const UNCERTAIN: Duration = Duration::from_secs(1);
/// Nothing that is due waits for longer than this between two looks.
const BREATH: Duration = Duration::from_millis(1);

impl Engine {
    /// Looks whenever something comes due, and at least at every poll interval.
    pub(crate) async fn find_for_ever(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        let (mut turn, mut failures) = (0, 0);
        loop {
            // Without a free slot there is nothing to look for, however long that lasts: the end of an attempt frees one.
            let Ok(slot) = work.slots.acquire().await else { return };
            drop(slot);
            if !self.may_start() {
                return;
            }
            // No bound: whatever is due waits in the database until the committer has room for it.
            while self.queue.wanted() == 0 {
                tokio::time::sleep(BREATH).await;
            }
            self.hint.take();
            let found = match self.find_due(turn).await {
                Ok(found) => found,
                Err(error) => {
                    if is_worth_a_line(failures) {
                        tracing::warn!(%error, failures, "looking for due calls failed, and is tried again");
                    }
                    tokio::time::sleep(backoff(Class::Unavailable, failures)).await;
                    failures = failures.saturating_add(1);
                    continue;
                }
            };
            failures = 0;
            turn += 1;
            if found == 0 {
                self.rest_until_due(work.poll).await;
            }
        }
    }

    async fn rest_until_due(&self, poll: Duration) {
        // Without a certain session nothing is claimed, however much is due.
        if self.session().is_none() {
            return tokio::time::sleep(poll.min(UNCERTAIN)).await;
        }
        let stored = match self.next_due().await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::warn!(%error, "the next due moment is not known; the next look is at the poll interval");
                None
            }
        };
        loop {
            let next = stored.unwrap_or(Timestamp::MAX).min(self.hint.earliest());
            let wait = self.clock.until(next).unwrap_or(poll).clamp(BREATH, poll);
            tokio::select! {
                () = tokio::time::sleep(wait) => return,
                () = self.hint.rung() => {}
            }
        }
    }

    /// When the next attempt or timer comes due.
    pub(crate) async fn next_due(&self) -> Result<Option<Timestamp>, Error> {
        let Some(work) = &self.work else { return Ok(None) };
        let mut reader = self.looker().await?;
        Ok(claim::next_due(&mut reader.conn(), &work.served).await?)
    }

    /// Fires the timers that are due and claims the attempts that are, one machine after the other beginning with the
    /// `turn`th, so that none starves another. Gives back how many it found.
    pub(crate) async fn find_due(self: &Arc<Self>, turn: usize) -> Result<usize, Error> {
        if !self.may_start() {
            return Ok(0);
        }
        let most = self.queue.wanted().max(1);
        Ok(self.fire_due(most).await? + self.claim_due(turn, most).await?)
    }

    async fn fire_due(self: &Arc<Self>, most: usize) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let due = {
            let mut reader = self.looker().await?;
            timers::due(&mut reader.conn(), &work.served, self.clock.now(), u32::try_from(most).unwrap_or(u32::MAX)).await?
        };
        let found = due.len();
        let firing = due.into_iter().map(|due| {
            let whose = Whose::new(&due.machine, &due.key);
            self.request(|reply| Request::new(whose, What::Fire(Box::new(due)), Some(reply)))
        });
        let mut fired = found;
        for failed in futures_util::future::join_all(firing).await.into_iter().filter_map(Result::err) {
            // One that cannot fire does not keep the others, nor what is due besides: it is found again.
            tracing::warn!(error = %failed, "a timer did not fire, and is tried again");
            fired -= 1;
        }
        Ok(fired)
    }

    async fn claim_due(self: &Arc<Self>, turn: usize, most: usize) -> Result<usize, Error> {
        let (Some(work), Some(session)) = (&self.work, self.session()) else { return Ok(0) };
        let machines = work.served.len();
        let mut found = 0;
        for n in 0..machines {
            let served = &work.served[(turn + n) % machines];
            // Each machine gets an even part of the free slots first; what one leaves the next look gives to all.
            let share = (work.slots.available_permits() / (machines - n)).clamp(1, most);
            let mut slots: Vec<_> = (0..share).map_while(|_| self.free_slot()).collect();
            if slots.is_empty() {
                break;
            }
            let _under_way = self.committing.begin();
            let limit = u32::try_from(slots.len()).unwrap_or(u32::MAX);
            let claimed = self.store.claim(session, served, limit, self.clock.now()).await?;
            found += claimed.len();
            for mut claimed in claimed {
                let whose = Whose::new(&claimed.attempt.machine, &claimed.instance.key);
                self.memories.put(&whose, Memory::of(&claimed.instance, claimed.seen.take()));
                self.run(whose, claimed, slots.pop());
            }
        }
        Ok(found)
    }
}
