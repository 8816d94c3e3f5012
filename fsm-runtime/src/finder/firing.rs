//! Fires due timers. A timer that fails is left out of the scans and retried with backoff.

use std::sync::Arc;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::RequestKind;
use fsm_store::error::StoreError;
use fsm_store::timers::{self, DueTimer};
use futures_util::future::join_all;

use super::has_answered;
use crate::committer::request::Request;
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::{AGAIN, LONGEST, OfMachine, longest};

/// A due timer, with the index of its machine among those served.
pub(super) type Found = (usize, DueTimer);

impl Engine {
    /// Returns up to `most` due timers of each machine, and failed timers whose wait is over. An error for one machine does not affect the
    /// others.
    pub(super) async fn look_for_timers(&self, most: usize) -> Result<Vec<Found>, Error> {
        let Some(work) = &self.work else { return Ok(Vec::new()) };
        let (mut found, mut failed) = (Vec::new(), None);
        for place in 0..work.served.len() {
            match self.look_for_timers_of(place, most).await {
                Ok(timers) => found.extend(timers.into_iter().map(|timer| (place, timer))),
                Err(error) => {
                    if !self.outage.reports_of_store(&error) {
                        tracing::warn!(machine = work.served[place].machine, %error, "looking for due timers failed");
                    }
                    let has_answered = has_answered(&error);
                    failed = Some(error);
                    if !has_answered {
                        break;
                    }
                }
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error.into()),
            _ => Ok(found),
        }
    }

    async fn look_for_timers_of(&self, place: usize, most: usize) -> Result<Vec<DueTimer>, StoreError> {
        let Some(work) = &self.work else { return Ok(Vec::new()) };
        let (served, failing, now) = (&work.served[place], &work.failures.of[place], self.clock.now());
        let again = failing.timers.due(now, AGAIN);
        let mut reader = self.engine_reader().await?;
        let mut due = timers::due(&mut reader.conn(), served, now, u32::try_from(most).unwrap_or(u32::MAX), &failing.except()).await?;
        if !again.is_empty() {
            let these = timers::these(&mut reader.conn(), served, now, &again).await?;
            let is_there =
                |timer| these.timers.iter().any(|due| due.timer.id == timer) || these.unread.iter().any(|(unread, _)| *unread == timer);
            again.into_iter().filter(|timer| !is_there(*timer)).for_each(|timer| failing.timers.passed(timer));
            due.timers.extend(these.timers);
            due.unread.extend(these.unread);
        }
        for (timer, why) in due.unread {
            let again = failing.timers.failed(timer, now, LONGEST);
            if again.is_logged() {
                let (machine, tries) = (&served.machine, again.tries);
                tracing::warn!(machine, timer = %timer.0, tries, error = %why, again_in = ?again.wait, "a due timer cannot be read; the others fire");
            }
        }
        Ok(due.timers)
    }

    /// Fires the timers and returns the number that succeeded. A timer that fails does not affect the others.
    pub(super) async fn fire_all(self: &Arc<Self>, found: Vec<Found>) -> usize {
        let Some(work) = &self.work else { return 0 };
        let firing = found.into_iter().map(|(place, due)| self.fire(&work.failures.of[place], due));
        join_all(firing).await.into_iter().filter(|has_fired| *has_fired).count()
    }

    async fn fire(&self, failing: &OfMachine, due: DueTimer) -> bool {
        let timer = due.timer.id;
        let Some(_firing) = failing.fire(timer) else { return false };
        let target = InstanceKey::new(&due.machine, &due.key);
        let fired = self.request(|reply| Request::new(target.clone(), RequestKind::Fire(Box::new(due.timer)), Some(reply))).await;
        let Err(error) = fired else {
            failing.timers.passed(timer);
            return true;
        };
        if error.is_stopping() {
            return false;
        }
        let again = failing.timers.failed(timer, self.clock.now(), longest(&error));
        if again.is_logged() && !self.outage.reports(&error) {
            let InstanceKey { machine, key, .. } = &target;
            tracing::warn!(%machine, %key, timer = %timer.0, tries = again.tries, %error, again_in = ?again.wait, "a due timer cannot fire; the others do");
        }
        false
    }
}
