//! Claims attempts under limits that count in another partition, their home: a permit is granted there, and then the attempt is claimed here.
//!
//! No lock is held in one partition while the other one is asked. The permit admits the claim only if the instance has not changed meanwhile. Each home
//! is served on its own, so that one that cannot be reached delays no call of another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fsm_core::ids::InstanceId;
use fsm_core::limit::{Group, Room, admit};
use fsm_core::permit::{home_of, is_home};
use fsm_core::priority::kept;
use fsm_core::time::Timestamp;
use fsm_store::claim::may_be_a_rows;
use fsm_store::limit_permits::{Wanted, firsts, rooms};
use fsm_store::limit_values::{all_buckets, buckets};
use fsm_store::limits;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::OwnedSemaphorePermit;

use super::limited::TAKEN;
use crate::engine::Engine;
use crate::error::Error;
use crate::permits::{BREATH, PermitError, there};
use crate::preference::Turn;

/// For each home, the buckets of each limit for which calls of this partition wait.
type WaitingElsewhere = BTreeMap<u32, BTreeMap<String, Vec<String>>>;

/// The number of buckets that one look at a home considers.
const BUCKETS: usize = 100;

impl Engine {
    /// Serves each home for whose limits calls of this partition wait: when one comes due or a place is free, and at least at every poll interval.
    pub(crate) async fn claim_permitted_loop(self: Arc<Self>) {
        let (Some(work), Some(_)) = (&self.work, self.partition) else { return };
        let (mut served, mut serving) = (HashSet::new(), FuturesUnordered::new());
        while self.may_start() {
            // Many commits that make calls due share one scan.
            let mut pause = pin!(tokio::time::sleep(BREATH));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    Some(home) = serving.next(), if !serving.is_empty() => drop(served.remove(&home)),
                }
            }
            let has_slot = work.slots.available_permits() > 0;
            let mut next = None;
            if !has_slot {
                self.permit_state.forget_all();
            } else if work.has_limits.load(Ordering::Acquire) && self.session().is_some() {
                let mut scan = pin!(self.waiting_elsewhere(false));
                let scanned = loop {
                    tokio::select! {
                        scanned = &mut scan => break scanned,
                        // Claims go on meanwhile: they may have the connection that the scan waits for.
                        Some(home) = serving.next(), if !serving.is_empty() => drop(served.remove(&home)),
                    }
                };
                let (waiting, next_due) = scanned.unwrap_or_else(|error| {
                    if !self.outage.reports(&error) {
                        tracing::warn!(%error, "looking for due calls under limits of other partitions failed, and is tried again");
                    }
                    Default::default()
                });
                next = next_due;
                for (home, waiting) in waiting {
                    if served.insert(home) {
                        serving.push(self.serve_home(home, waiting));
                    }
                }
            }
            let poll = work.preference.poll(Turn::Permits).max(BREATH);
            let wait = next.and_then(|next| self.clock.until(next)).unwrap_or(poll).clamp(BREATH, poll);
            tokio::select! {
                Some(home) = serving.next(), if !serving.is_empty() => drop(served.remove(&home)),
                () = self.permit_state.has_waiting.notified() => {}
                _slot = work.slots.acquire(), if !has_slot => {}
                () = tokio::time::sleep(wait) => {}
                () = work.stops() => {}
            }
        }
        while serving.next().await.is_some() {}
    }

    /// Claims what has room at each home. Returns the number of attempts.
    #[cfg(feature = "testing")]
    pub(crate) async fn claim_permitted(self: &Arc<Self>) -> Result<usize, Error> {
        if self.partition.is_none() || !self.may_start() || self.session().is_none() {
            return Ok(0);
        }
        let mut found = 0;
        for (home, waiting) in self.waiting_elsewhere(true).await?.0 {
            match Box::pin(self.claim_at_home(home, &waiting)).await {
                Ok(claimed) => found += claimed,
                Err(PermitError::Here(error) | PermitError::There(error)) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// The time at which a call under a limit of another partition is due, or may start by the rate.
    #[cfg(feature = "testing")]
    pub(crate) async fn next_permitted(&self) -> Result<Option<Timestamp>, Error> {
        Ok(self.waiting_elsewhere(false).await?.1)
    }

    /// Claims what has room at a home, and returns its number.
    async fn serve_home(self: &Arc<Self>, home: u32, waiting: BTreeMap<String, Vec<String>>) -> u32 {
        match Box::pin(self.claim_at_home(home, &waiting)).await {
            Ok(found) => {
                self.permit_state.answered(home);
                if found > 0 {
                    // There may be more.
                    self.permit_state.has_waiting.notify_one();
                }
            }
            Err(error) => {
                if let (Some(work), Some(other)) = (&self.work, self.peer(home)) {
                    let now = self.clock.now();
                    waiting.values().flatten().for_each(|bucket| self.permit_state.wait(bucket, now, Some(now + work.poll)));
                    self.note_home_failure(&other, home, error);
                }
            }
        }
        home
    }

    /// The buckets with due calls that count in other partitions, and the time at which the next call is due or may start. Buckets without
    /// room are left out until that time, unless `all` are wanted.
    async fn waiting_elsewhere(&self, all: bool) -> Result<(WaitingElsewhere, Option<Timestamp>), Error> {
        let (Some(work), Some(here)) = (&self.work, self.partition) else { return Ok(Default::default()) };
        let (now, mut next) = (self.clock.now(), None);
        let mut reader = self.engine_reader().await?;
        let conn = &mut reader.conn();
        let mut found: Vec<(String, String)> = Vec::new();
        let known = limits::all(conn).await?;
        if known.iter().any(|known| known.limit.by.is_none() && !is_home(Some(here), &known.name)) {
            let mut due = HashMap::new();
            for (served, failing) in work.served.iter().zip(&work.failures.of) {
                for (name, at) in limits::next_due(conn, served, &failing.except_limited(now)).await? {
                    let first = due.entry(name).or_insert(at);
                    *first = at.min(*first);
                }
            }
            for known in known.iter().filter(|known| known.limit.by.is_none() && !is_home(Some(here), &known.name)) {
                match due.get(&known.name) {
                    Some(at) if *at <= now => found.push((known.name.clone(), known.name.clone())),
                    at => next = [next, at.copied()].into_iter().flatten().min(),
                }
            }
        }
        for known in known.iter().filter(|known| known.limit.by.is_some()) {
            let mut from = Some(all_buckets(&known.name).0);
            while let Some(bucket) = from {
                let (some, next_from) = buckets(conn, &known.name, &bucket).await?;
                found.extend(some.into_iter().filter(|bucket| !is_home(Some(here), bucket)).map(|bucket| (known.name.clone(), bucket)));
                from = next_from;
            }
        }
        let there: HashSet<&str> = found.iter().map(|(_, bucket)| bucket.as_str()).collect();
        self.permit_state.retain(|bucket| is_home(Some(here), bucket) || there.contains(bucket));
        let mut waiting = WaitingElsewhere::new();
        for (limit, bucket) in found {
            if all || self.permit_state.is_to_ask(&bucket, work.poll, now) {
                waiting.entry(home_of(&bucket, here.of())).or_default().entry(limit).or_default().push(bucket);
            } else {
                next = [next, self.permit_state.until(&bucket)].into_iter().flatten().min();
            }
        }
        Ok((waiting, next))
    }

    async fn claim_at_home(self: &Arc<Self>, home: u32, waiting: &BTreeMap<String, Vec<String>>) -> Result<usize, PermitError> {
        let (Some(home), Some(_)) = (self.peer(home), self.session()) else { return Ok(0) };
        let mut found = 0;
        for (limit, buckets) in waiting {
            for some in buckets.chunks(BUCKETS) {
                found += self.claim_with_permits(&home, limit, some).await?;
            }
        }
        Ok(found)
    }

    /// Claims calls that wait in these buckets of a limit.
    async fn claim_with_permits(self: &Arc<Self>, home: &Arc<Engine>, limit: &str, buckets: &[String]) -> Result<usize, PermitError> {
        let Some(work) = &self.work else { return Ok(0) };
        let look = async { rooms(&mut home.engine_reader().await?.conn(), limit, buckets, home.clock.now()).await };
        let starts = self.starts_of(there(look).await?);
        let most: u32 = starts.iter().fold(0, |sum: u32, (_, starts)| sum.saturating_add(*starts));
        let most = (most as usize).min(self.queue.wanted().max(1));
        let mut slots: Vec<_> = (0..most).map_while(|_| self.free_slot()).collect();
        if slots.is_empty() {
            return Ok(0);
        }
        let (wanted, places) = self.wanted(limit, &starts, slots.len() as u32).await?;
        if wanted.is_empty() {
            return Ok(0);
        }
        let Some(number) = self.partition.map(|here| here.number()) else { return Ok(0) };
        let granted = there(home.store.grant_permits(limit, &wanted, number, home.clock.now())).await?;
        let Some(granted) = granted else {
            let until = Some(self.clock.now() + TAKEN);
            starts.iter().for_each(|(bucket, _)| self.permit_state.wait(bucket, self.clock.now(), until));
            return Ok(0);
        };
        let granted: Vec<&Wanted> = wanted.iter().filter(|wanted| granted.contains(&wanted.due.instance)).collect();
        let mut claimed = HashSet::new();
        for (place, _) in work.served.iter().enumerate() {
            let of_machine: Vec<_> = granted.iter().copied().filter(|wanted| places.get(&wanted.due.instance) == Some(&place)).collect();
            if !of_machine.is_empty() {
                self.claim_granted(place, &of_machine, &mut slots, &mut claimed).await?;
            }
        }
        work.shares.note_under(limit, claimed.len());
        // A permit that admitted no claim is over if the row has changed. Otherwise a check finds it.
        granted
            .iter()
            .filter(|wanted| !claimed.contains(&wanted.due.instance))
            .for_each(|wanted| self.permit_state.note_over(&wanted.bucket, wanted.due.instance));
        Ok(claimed.len())
    }

    /// The buckets that have room for calls of this partition. Notes which have none.
    fn starts_of(&self, rooms: Vec<(String, Room)>) -> Vec<(String, u32)> {
        let left_to_others = self.left_to_others();
        let mut open = Vec::with_capacity(rooms.len());
        for (bucket, room) in rooms {
            let starts = room.starts.saturating_sub(left_to_others.get(&bucket).copied().unwrap_or(0));
            if starts == 0 {
                let now = self.clock.now();
                let until = if room.starts > 0 { Some(now + TAKEN) } else { room.next };
                self.note_wait(&bucket, room.starts > 0, until);
            } else {
                open.push((bucket, starts));
            }
        }
        open
    }

    /// The calls that are to start, at most `most`, and the places of their machines.
    async fn wanted(
        &self,
        limit: &str,
        starts: &[(String, u32)],
        most: u32,
    ) -> Result<(Vec<Wanted>, HashMap<InstanceId, usize>), PermitError> {
        let Some(work) = &self.work else { return Ok(Default::default()) };
        let (except, now) = (self.all_except_limited(), self.clock.now());
        let open: Vec<String> = starts.iter().map(|(bucket, _)| bucket.clone()).collect();
        let (mut wanted, mut places) = (HashMap::new(), HashMap::new());
        let mut groups: Vec<Group> = starts.iter().map(|(_, starts)| Group { starts: *starts, due: Vec::new() }).collect();
        let mut reader = self.engine_reader().await?;
        for (place, part) in self.all_parts(&except).into_iter().enumerate() {
            for first in firsts(&mut reader.conn(), part, &open, most, now).await? {
                let Some(group) = open.iter().position(|bucket| *bucket == first.bucket) else { continue };
                groups[group].due.push(first.call);
                places.insert(first.due.instance, place);
                wanted.insert(first.due.instance, first);
            }
        }
        // No call of this process's machines waits there.
        let empty = groups.iter().zip(&open).filter(|(group, _)| group.due.is_empty());
        empty.for_each(|(_, bucket)| self.permit_state.forget(bucket));
        let admitted = admit(&groups, most, kept(work.shares.under(limit), most));
        Ok((admitted.into_iter().filter_map(|(_, instance)| wanted.remove(&instance)).collect(), places))
    }

    /// Claims calls of one machine with their permits, and begins them.
    async fn claim_granted(
        self: &Arc<Self>,
        place: usize,
        granted: &[&Wanted],
        slots: &mut Vec<OwnedSemaphorePermit>,
        claimed: &mut HashSet<InstanceId>,
    ) -> Result<(), PermitError> {
        let _under_way = self.in_flight.begin();
        // The lease may have ended or a shutdown begun while the home was asked.
        let (Some(work), Some(session), true) = (&self.work, self.session(), self.may_start()) else { return Ok(()) };
        let (served, now) = (&work.served[place], self.clock.now());
        let ids = |claims: &fsm_store::claim::Claims| claims.claimed.iter().map(|claimed| claimed.instance.id).collect::<Vec<_>>();
        match self.store.claim_permitted(session, served, granted, now).await {
            Ok(claims) => {
                claimed.extend(ids(&claims));
                self.begin_limited(place, session, claims, slots).await;
            }
            Err(error) if may_be_a_rows(&error) => {
                tracing::debug!(machine = served.machine, %error, "a claim with permits failed; its attempts are claimed one by one");
                for wanted in granted {
                    match self.store.claim_permitted(session, served, &[wanted], now).await {
                        Ok(claims) => {
                            claimed.extend(ids(&claims));
                            self.begin_limited(place, session, claims, slots).await;
                        }
                        Err(error) if may_be_a_rows(&error) => self.cannot_claim(place, wanted.due, &error),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
