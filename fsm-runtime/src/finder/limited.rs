//! Claims attempts that wait for a limit. A read without a lock shows which limits have room; only for those a claim is tried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fsm_core::ids::SessionId;
use fsm_core::limit::{Limit, Room};
use fsm_core::permit::is_home;
use fsm_core::time::Timestamp;
use fsm_store::claim::{Claims, Which, claimable, may_be_a_rows};
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::limits::{self, Part, StoredLimit};
use tokio::sync::OwnedSemaphorePermit;

use crate::engine::Engine;
use crate::error::Error;

/// The wait before the next claim under a limit under which another process claims at this moment.
pub(super) const TAKEN: Duration = Duration::from_millis(5);

/// A limit for which attempts of this process's machines wait.
pub(super) struct Waiting {
    pub(super) limit: String,
    /// The setting of a limit by value. `room` and `due` then are of the calls that have no value yet, and get it.
    pub(super) by_value: Option<Limit>,
    room: Room,
    /// The machines, by their place in `served`, each with the time at which its first attempt is due; the earliest first.
    pub(super) due: Vec<(usize, Timestamp)>,
}

impl Waiting {
    /// The time at which an attempt may start; `None` if a running one has to end first.
    fn next(&self) -> Option<Timestamp> {
        let (_, due) = self.due.first()?;
        if self.room.starts > 0 { Some(*due) } else { self.room.next.map(|next| next.max(*due)) }
    }
}

impl Engine {
    /// Claims attempts under each limit that has room. Returns the number of claimed attempts.
    pub(super) async fn claim_limited(self: &Arc<Self>, most: usize) -> Result<usize, Error> {
        let (Some(work), Some(session)) = (&self.work, self.session()) else { return Ok(0) };
        if !work.has_limits.load(Ordering::Acquire) {
            return Ok(0);
        }
        let left_to_others = self.left_to_others();
        let waiting = self.waiting_for_limits(&mut self.engine_reader().await?.conn()).await?;
        let mut found = 0;
        for Waiting { limit, by_value, room, due } in waiting {
            if let Some(setting) = by_value {
                // In a box, because the future is large and few programs need it.
                found += Box::pin(self.claim_by_value(&limit, &setting, &due, session, most)).await?;
                continue;
            }
            let now = self.clock.now();
            let due: Vec<usize> = due.into_iter().filter(|(_, at)| *at <= now).map(|(place, _)| place).collect();
            let left = left_to_others.get(&limit).copied().unwrap_or(0);
            if !due.is_empty() && self.partition.is_some() && room.starts <= left {
                self.note_wait(&limit, room.starts > 0, None);
            }
            let wanted = if due.is_empty() { 0 } else { most.min(room.starts.saturating_sub(left) as usize) };
            let mut slots: Vec<_> = (0..wanted).map_while(|_| self.free_slot()).collect();
            if !slots.is_empty() {
                found += self.claim_under(&limit, session, &due, &mut slots).await?;
            }
        }
        Ok(found)
    }

    /// The time at which an attempt that waits for a limit may start, as far as that is known.
    pub(super) async fn next_limited(&self, conn: &mut Conn<'_>) -> Result<Option<Timestamp>, Error> {
        let Some(work) = self.work.as_ref().filter(|work| work.has_limits.load(Ordering::Acquire)) else { return Ok(None) };
        let waiting = self.waiting_for_limits(conn).await?;
        let mut next = waiting.iter().filter_map(Waiting::next).min();
        for of in waiting.iter().filter(|waiting| waiting.by_value.is_some()) {
            let of_values = Box::pin(self.next_by_value(conn, of)).await?;
            next = [next, of_values].into_iter().flatten().min();
        }
        Ok(next.map(|next| next.max(Timestamp::from_micros(work.limits_taken_until.load(Ordering::Acquire)))))
    }

    async fn waiting_for_limits(&self, conn: &mut Conn<'_>) -> Result<Vec<Waiting>, StoreError> {
        let Some(work) = &self.work else { return Ok(Vec::new()) };
        let now = self.clock.now();
        let mut waiting: Vec<Waiting> = limits::all(conn)
            .await?
            .into_iter()
            .map(|StoredLimit { name, limit, used }| match limit.by {
                Some(_) => Waiting { room: Room { starts: u32::MAX, next: None }, limit: name, by_value: Some(limit), due: Vec::new() },
                None => Waiting { room: limit.room(used, now), limit: name, by_value: None, due: Vec::new() },
            })
            .collect();
        for (place, (served, failing)) in work.served.iter().zip(&work.failures.of).enumerate() {
            for (name, at) in limits::next_due(conn, served, &failing.except_limited(now)).await? {
                if let Some(limit) = waiting.iter_mut().find(|waiting| waiting.limit == name) {
                    limit.due.push((place, at));
                }
            }
        }
        // A limit that counts in another partition is for `claim_permitted_loop`. Its calls get their values here.
        let is_here = |waiting: &Waiting| is_home(self.partition, &waiting.limit) && !waiting.due.is_empty();
        waiting.retain(|waiting| waiting.by_value.is_some() || is_here(waiting));
        waiting.iter_mut().for_each(|waiting| waiting.due.sort_by_key(|(_, at)| *at));
        Ok(waiting)
    }

    async fn claim_under(
        self: &Arc<Self>,
        limit: &str,
        session: SessionId,
        places: &[usize],
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let _under_way = self.in_flight.begin();
        let now = self.clock.now();
        let except: Vec<_> = places.iter().map(|place| work.failures.of[*place].except_limited(now)).collect();
        let parts: Vec<_> = places.iter().zip(&except).map(|(place, except)| Part { served: &work.served[*place], except }).collect();
        let most = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        match self.store.claim_limited(session, limit, &parts, (work.shares.under(limit), most), now).await {
            Ok(Some(claims)) => {
                let mut found = 0;
                for (place, claims) in places.iter().zip(claims) {
                    found += self.begin_limited(*place, session, claims, slots).await;
                }
                work.shares.note_under(limit, found);
                Ok(found)
            }
            Ok(None) => {
                self.note_taken(now);
                Ok(0)
            }
            Err(error) if may_be_a_rows(&error) => {
                tracing::debug!(limit, %error, "a claim under a limit failed; its attempts are claimed one by one");
                let mut found = 0;
                for (place, except) in places.iter().zip(&except) {
                    found += self.claim_each_limited(limit, *place, session, except, slots).await?;
                }
                Ok(found)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that another process claims under a limit at this moment.
    pub(super) fn note_taken(&self, now: Timestamp) {
        if let Some(work) = &self.work {
            work.limits_taken_until.store((now + TAKEN).as_micros(), Ordering::Release);
        }
    }

    /// Claims each attempt in a transaction of its own, so that a row that fails does not affect the others.
    async fn claim_each_limited(
        self: &Arc<Self>,
        limit: &str,
        place: usize,
        session: SessionId,
        except: &[String],
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let (served, now, mut found) = (&work.served[place], self.clock.now(), 0);
        let most = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let due = claimable(&mut self.engine_reader().await?.conn(), served, most, now, Which::Limited(limit, except)).await?;
        for (due, _) in due {
            match self.store.claim_limited_one(session, limit, served, due.instance, now).await {
                Ok(claims) => {
                    for claims in claims.into_iter().flatten() {
                        found += self.begin_limited(place, session, claims, slots).await;
                    }
                }
                Err(error) if may_be_a_rows(&error) => self.cannot_claim(place, due, &error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    pub(super) async fn begin_limited(
        self: &Arc<Self>,
        place: usize,
        session: SessionId,
        claims: Claims,
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> usize {
        if let Some(work) = &self.work {
            claims.due().for_each(|due| work.failures.of[place].calls.passed(due));
        }
        if self.partition.is_some() {
            let buckets = claims.claimed.iter().filter_map(|claimed| claimed.attempt.limit.as_deref());
            buckets.for_each(|bucket| self.permit_state.forget(bucket));
        }
        self.begin(place, session, claims, slots).await
    }
}
