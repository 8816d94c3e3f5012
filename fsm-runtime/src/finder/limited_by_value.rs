//! Claims attempts that wait for a limit by value. Calls that have no value yet get it first. Then some values at a time are looked at without a
//! lock, in turns, and only where a call may start a claim is tried.

use std::sync::Arc;

use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::limit::Limit;
use fsm_core::time::Timestamp;
use fsm_store::claim::{DueCall, Which, claimable, may_be_a_rows};
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::limit_values::{ASSIGNED_AT_A_TIME, Look, all_buckets, look};
use fsm_store::limits::{Home, Part};
use tokio::sync::OwnedSemaphorePermit;

use super::limited::Waiting;
use crate::engine::Engine;
use crate::error::Error;

/// The maximum number of times that one scan gives values to calls. The next scan continues.
const MOST_ASSIGNMENTS: u32 = 8;

/// A limit by value: its name and its search field.
#[derive(Clone, Copy)]
struct ByValue<'l> {
    name: &'l str,
    field: &'l str,
}

impl Engine {
    /// Claims attempts of the values that have room. `without_value` are the machines with calls that have no value yet, each with the time at which the
    /// first one is due. Returns the number of claimed attempts.
    pub(super) async fn claim_by_value(
        self: &Arc<Self>,
        name: &str,
        limit: &Limit,
        without_value: &[(usize, Timestamp)],
        session: SessionId,
        most: usize,
    ) -> Result<usize, Error> {
        let (Some(work), Some(field)) = (&self.work, &limit.by) else { return Ok(0) };
        let by = ByValue { name, field };
        let _under_way = self.in_flight.begin();
        let now = self.clock.now();
        let places: Vec<usize> = without_value.iter().filter(|(_, due)| *due <= now).map(|(place, _)| *place).collect();
        let mut found = 0;
        if !places.is_empty() {
            found = self.assign_values(by, &places).await?;
            // Some of the values may count in other partitions.
            self.permit_state.has_waiting.notify_one();
        }
        let left_to_others = self.left_to_others();
        let home = Home { here: self.partition, left_to_others: &left_to_others };
        let mut slots: Vec<_> = (0..most).map_while(|_| self.free_slot()).collect();
        let start = work.shares.first_bucket(name).unwrap_or_else(|| all_buckets(name).0);
        let (mut from, mut has_turned) = (start.clone(), false);
        while !slots.is_empty() {
            let except = self.all_except_limited();
            let parts = self.all_parts(&except);
            let looked = look(&mut self.engine_reader().await?.conn(), (name, limit), &parts, &from, home, self.clock.now()).await?;
            if self.partition.is_some() {
                looked.full().for_each(|(bucket, yields)| self.note_wait(bucket, yields, None));
            }
            if looked.startable().next().is_some() {
                let Some(claimed) = self.claim_values(by, session, &parts, (&from, &looked, home), &mut slots).await? else { break };
                found += claimed;
            }
            // One turn through the values, from where the last scan stopped.
            let next = looked.next_from.filter(|next| !has_turned || *next < start);
            if next.is_none() && (has_turned || start == all_buckets(name).0) {
                work.shares.set_first_bucket(name, None);
                break;
            }
            has_turned |= next.is_none();
            from = next.unwrap_or_else(|| all_buckets(name).0);
            work.shares.set_first_bucket(name, Some(from.clone()));
        }
        Ok(found)
    }

    /// The time at which an attempt that waits in a bucket may start; `None` if a running one has to end first.
    pub(super) async fn next_by_value(&self, conn: &mut Conn<'_>, waiting: &Waiting) -> Result<Option<Timestamp>, StoreError> {
        let Some(limit) = &waiting.by_value else { return Ok(None) };
        let (except, now) = (self.all_except_limited(), self.clock.now());
        let (parts, mut next) = (self.all_parts(&except), None);
        let left_to_others = self.left_to_others();
        let home = Home { here: self.partition, left_to_others: &left_to_others };
        let mut from = Some(all_buckets(&waiting.limit).0);
        while let Some(bucket) = from {
            let looked = look(conn, (&waiting.limit, limit), &parts, &bucket, home, now).await?;
            if looked.startable().next().is_some() {
                return Ok(Some(now));
            }
            next = [next, looked.next()].into_iter().flatten().min();
            from = looked.next_from;
        }
        Ok(next)
    }

    pub(super) fn all_except_limited(&self) -> Vec<Vec<String>> {
        let now = self.clock.now();
        self.work.iter().flat_map(|work| &work.failures.of).map(|failing| failing.except_limited(now)).collect()
    }

    pub(super) fn all_parts<'e>(&'e self, except: &'e [Vec<String>]) -> Vec<Part<'e>> {
        self.work.iter().flat_map(|work| &work.served).zip(except).map(|(served, except)| Part { served, except }).collect()
    }

    /// Gives the due calls of these machines their values. Returns how many could not get one.
    async fn assign_values(self: &Arc<Self>, by: ByValue<'_>, places: &[usize]) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        for _ in 0..MOST_ASSIGNMENTS {
            let now = self.clock.now();
            let except: Vec<_> = places.iter().map(|place| work.failures.of[*place].except_limited(now)).collect();
            let parts: Vec<_> = places.iter().zip(&except).map(|(place, except)| Part { served: &work.served[*place], except }).collect();
            match self.store.assign_values(by.name, by.field, &parts, now).await {
                Ok(Some(assigned)) if assigned >= ASSIGNED_AT_A_TIME as usize => {}
                Ok(Some(_)) => break,
                Ok(None) => {
                    self.note_taken(now);
                    break;
                }
                Err(error) if may_be_a_rows(&error) => {
                    tracing::debug!(limit = by.name, %error, "calls under a limit did not get their values; they get them one by one");
                    let mut failed = 0;
                    for (place, except) in places.iter().zip(&except) {
                        failed += self.assign_each(by, *place, except).await?;
                    }
                    return Ok(failed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }

    /// The same with a transaction for each call, so that a row that fails does not affect the others.
    async fn assign_each(self: &Arc<Self>, by: ByValue<'_>, place: usize, except: &[String]) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let which = Which::Limited(by.name, except);
        let due =
            claimable(&mut self.engine_reader().await?.conn(), &work.served[place], ASSIGNED_AT_A_TIME, self.clock.now(), which).await?;
        let mut failed = 0;
        for (due, _) in due {
            match self.store.assign_value(by.name, by.field, due.instance).await {
                Ok(_) => {}
                Err(error) if may_be_a_rows(&error) => {
                    self.cannot_claim(place, due, &error);
                    failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(failed)
    }

    /// Claims what may start of these values. Returns the number of attempts; `None` if another process claims under this limit at this moment.
    async fn claim_values(
        self: &Arc<Self>,
        by: ByValue<'_>,
        session: SessionId,
        parts: &[Part<'_>],
        (from, looked, home): (&str, &Look, Home<'_>),
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<Option<usize>, Error> {
        match self.claim_some_values(by, session, parts, (from, None, home), slots).await {
            Ok(claimed) => Ok(claimed),
            Err(error) if may_be_a_rows(&error) => {
                tracing::debug!(limit = by.name, %error, "a claim under a limit failed; its attempts are claimed one by one");
                let (mut found, mut failed) = (0, 0);
                for (place, call, instance) in looked.startable() {
                    if slots.is_empty() {
                        break;
                    }
                    match self.claim_some_values(by, session, parts, (from, Some(instance), home), slots).await {
                        Ok(Some(claimed)) => found += claimed,
                        Ok(None) => return Ok(Some(found + failed).filter(|found| *found > 0)),
                        Err(error) if may_be_a_rows(&error) => {
                            self.cannot_claim_limited(place, call, instance, &error);
                            failed += 1;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(Some(found + failed))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn cannot_claim_limited(&self, place: usize, call: CallId, instance: InstanceId, error: &StoreError) {
        self.cannot_claim(place, DueCall { call, instance, is_limited: true }, error);
    }

    /// Claims under the lock of the limit: from the bucket `from` on, or only the attempt of one instance. Returns the number of attempts; `None` if
    /// another process has the lock.
    async fn claim_some_values(
        self: &Arc<Self>,
        by: ByValue<'_>,
        session: SessionId,
        parts: &[Part<'_>],
        (from, only, home): (&str, Option<InstanceId>, Home<'_>),
        slots: &mut Vec<OwnedSemaphorePermit>,
    ) -> Result<Option<usize>, StoreError> {
        let Some(work) = &self.work else { return Ok(None) };
        let (now, most) = (self.clock.now(), u32::try_from(slots.len()).unwrap_or(u32::MAX));
        let places = (work.shares.under(by.name), most);
        let claim = self.store.claim_limited_by_value(session, (by.name, by.field), parts, (from, only), places, (home, now));
        let Some(claimed) = claim.await? else {
            self.note_taken(now);
            return Ok(None);
        };
        let mut found = 0;
        for (place, claims) in claimed.into_iter().enumerate() {
            found += self.begin_limited(place, session, claims, slots).await;
        }
        work.shares.note_under(by.name, found);
        Ok(Some(found))
    }
}
