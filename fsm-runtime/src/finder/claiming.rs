//! Claims due attempts. An attempt that cannot be claimed is left out of the scans and retried with backoff.

use std::sync::Arc;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::rows::CachedSnapshot;
use fsm_core::ids::SessionId;
use fsm_store::claim::{Claims, DueCall, Places, Which, claimable, may_be_a_rows};
use fsm_store::error::StoreError;
use tokio::sync::OwnedSemaphorePermit;

use super::has_answered;
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::LONGEST;

/// The number of consecutive failed claims after which a scan stops. The cause is then probably not in the rows.
const IN_A_ROW: usize = 8;

impl Engine {
    /// Claims attempts of one machine after the other, starting with number `turn`. Failed claims of one machine do not prevent those of
    /// another.
    pub(super) async fn claim_due(self: &Arc<Self>, turn: usize, most: usize) -> Result<usize, Error> {
        let (Some(work), Some(session)) = (&self.work, self.session()) else { return Ok(0) };
        let machines = work.served.len();
        let (mut found, mut failed) = (0, None);
        for n in 0..machines {
            // Each machine first gets an equal share of the free slots. Slots that it leaves unused go to all machines at the next scan.
            let share = (work.slots.available_permits() / (machines - n)).clamp(1, most);
            let slots: Vec<_> = (0..share).map_while(|_| self.free_slot()).collect();
            if slots.is_empty() {
                break;
            }
            let place = (turn + n) % machines;
            match self.claim_of(place, session, slots).await {
                Ok(claimed) => found += claimed,
                Err(error) => {
                    if !self.outage.reports_of_store(&error) {
                        tracing::warn!(machine = work.served[place].machine, %error, "claiming due attempts failed");
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
            Some(error) if found == 0 => Err(error.into()),
            _ => Ok(found),
        }
    }

    async fn claim_of(
        self: &Arc<Self>,
        place: usize,
        session: SessionId,
        mut slots: Vec<OwnedSemaphorePermit>,
    ) -> Result<usize, StoreError> {
        let Some(work) = &self.work else { return Ok(0) };
        let (served, failing) = (&work.served[place], &work.failures.of[place]);
        let _under_way = self.in_flight.begin();
        let mut found = self.claim_each(place, session, failing.unlimited(self.clock.now()), &mut slots).await?;
        let (now, except) = (self.clock.now(), failing.except().instances);
        let limit = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        if limit == 0 {
            return Ok(found);
        }
        let places = work.shares.places(place, limit);
        if work.shares.is_fair(place) {
            // In a box, because the future is large and few machines need it.
            match Box::pin(self.claim_fairly(place, session, places, &except, &mut slots)).await {
                // Others hold the chosen rows, or have claimed them: any due attempt is better than none.
                Ok(0) => {}
                Ok(claimed) => return Ok(found + claimed),
                Err(error) if may_be_a_rows(&error) => {
                    tracing::debug!(machine = served.machine, %error, "a fair claim failed; the attempts are claimed by their due times");
                }
                Err(error) => return Err(error),
            }
        }
        match self.claim_by_priority(place, session, places, &except).await {
            Ok(claims) => found += self.begin(place, session, claims, &mut slots).await,
            Err(error) if may_be_a_rows(&error) => {
                tracing::debug!(machine = served.machine, %error, "a claim failed; its attempts are claimed one by one");
                let due = claimable(&mut self.engine_reader().await?.conn(), served, limit, now, Which::AllBut(&except)).await?;
                let claimed = self.claim_each(place, session, due.into_iter().map(|(due, _)| due).collect(), &mut slots).await?;
                found += claimed;
            }
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// Claims attempts by priority and time. Until this process has seen a priority, most claims read normal attempts only, which costs less. Those do not
    /// count for the shares: otherwise the claims that read all priorities could miss the place of the low ones each time.
    async fn claim_by_priority(&self, place: usize, session: SessionId, places: Places, except: &[String]) -> Result<Claims, StoreError> {
        let Some(work) = &self.work else { return Ok(Claims::default()) };
        let (served, now) = (&work.served[place], self.clock.now());
        if work.shares.reads_normal_only(place, now) {
            let claims = self.store.claim(session, served, places, now, Which::NormalBut(except)).await?;
            if claims.count() > 0 {
                return Ok(claims);
            }
        }
        let claims = self.store.claim(session, served, places, now, Which::AllBut(except)).await?;
        work.shares.note(place, places, &claims);
        Ok(claims)
    }

    /// Claims attempts of a machine with `fair_by` by their fair shares. Returns the number of claimed attempts.
    async fn claim_fairly(
        self: &Arc<Self>,
        place: usize,
        session: SessionId,
        places: Places,
        except: &[String],
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<usize, StoreError> {
        let Some(work) = &self.work else { return Ok(0) };
        let chosen = self.fair_choice(place, places, except).await?;
        if chosen.is_empty() {
            return Ok(0);
        }
        let claims = self.store.claim(session, &work.served[place], places, self.clock.now(), Which::These(&chosen)).await?;
        if claims.count() == 0 {
            return Ok(0);
        }
        work.shares.note(place, places, &claims);
        Ok(self.begin(place, session, claims, slots).await)
    }

    /// Claims each attempt with its own statement, so that a row that fails does not affect the others. Returns the number of claimed
    /// attempts.
    async fn claim_each(
        self: &Arc<Self>,
        place: usize,
        session: SessionId,
        calls: Vec<DueCall>,
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<usize, StoreError> {
        let Some(work) = &self.work else { return Ok(0) };
        let (mut found, mut in_a_row) = (0, 0);
        for due in calls {
            if slots.is_empty() || in_a_row == IN_A_ROW {
                break;
            }
            match self.store.claim(session, &work.served[place], 1.into(), self.clock.now(), Which::Of(due.instance)).await {
                Ok(claims) => {
                    if claims.unread.is_empty() {
                        work.failures.of[place].calls.passed(due);
                    }
                    found += self.begin(place, session, claims, slots).await;
                    in_a_row = 0;
                }
                Err(error) if may_be_a_rows(&error) => {
                    self.cannot_claim(place, due, &error);
                    in_a_row += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Starts the claimed attempts. Attempts that cannot be read are released and left out of the scans for a while. Returns the number of both:
    /// after each, the next scan finds something else.
    pub(super) async fn begin(
        self: &Arc<Self>,
        place: usize,
        session: SessionId,
        mut claims: Claims,
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> usize {
        let found = claims.count() as usize;
        self.read_traces(&mut claims.claimed).await;
        for mut claimed in claims.claimed {
            let target = InstanceKey::new(&claimed.attempt.machine, &claimed.instance.key);
            self.snapshot_cache.put(&target, CachedSnapshot::of(&claimed.instance, claimed.seen.take()));
            self.run(target, claimed, slots.pop());
        }
        for (due, why) in claims.unread {
            self.cannot_claim(place, due, &why);
            if let Err(error) = self.store.unclaim(session, due.instance).await {
                tracing::warn!(call = %due.call, %error, "an attempt that cannot be read was claimed and could not be released");
            }
        }
        found
    }

    pub(super) fn cannot_claim(&self, place: usize, due: DueCall, error: &StoreError) {
        let Some(work) = &self.work else { return };
        let again = work.failures.of[place].calls.failed(due, self.clock.now(), LONGEST);
        if again.is_logged() && !self.outage.reports_of_store(error) {
            let (machine, tries) = (&work.served[place].machine, again.tries);
            tracing::warn!(machine, call = %due.call, tries, %error, again_in = ?again.wait, "a due attempt cannot be claimed; the others are");
        }
    }
}
