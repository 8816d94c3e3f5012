//! The ends of permits, and the turns of partitions under a limit.
//!
//! The process in which a call ends deletes its permit. Any worker finds what is left behind: it looks at the permits that are older than a moment, and
//! asks the partitions of their instances. A permit is deleted only if no claim with it can succeed any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::permit::{CHECKED_AFTER, Permit, PermitRow, home_of, is_home, is_open, left_to_others, over_below};
use fsm_core::time::Timestamp;
use fsm_store::error::StoreError;
use fsm_store::limit_permits;
use futures_util::future::join_all;

use crate::committer::retry::is_worth_a_line;
use crate::engine::Engine;
use crate::error::Error;
use crate::preference::Turn;

/// The time that another partition gets for one step. A claim that waits for it holds its slots so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of permits that are checked at a time.
const AT_A_TIME: u32 = 500;
/// The shortest pause between two runs of a task that other partitions wake.
pub(crate) const BREATH: Duration = Duration::from_millis(5);

/// An operation with two partitions failed.
pub(crate) enum PermitError {
    /// This partition.
    Here(StoreError),
    /// The other one.
    There(StoreError),
}

impl From<StoreError> for PermitError {
    fn from(error: StoreError) -> PermitError {
        PermitError::Here(error)
    }
}

/// The result of a step in another partition, which has a time limit.
pub(crate) async fn there<T>(step: impl Future<Output = Result<T, StoreError>>) -> Result<T, PermitError> {
    match tokio::time::timeout(PATIENCE, Box::pin(step)).await {
        Ok(done) => done.map_err(PermitError::There),
        Err(_) => Err(PermitError::There(StoreError::Deadline(PATIENCE))),
    }
}

/// Wakes those of these partitions that wait for this bucket.
fn wake<'e>(partitions: impl IntoIterator<Item = &'e Arc<Engine>>, bucket: &str) {
    for partition in partitions {
        let now = partition.clock.now();
        if partition.permit_state.freed(bucket, now) {
            partition.wake_up.due(now);
        }
    }
}

impl Engine {
    /// Notes that a call under a limit has ended here.
    pub(crate) fn note_place_free(&self, bucket: &str, instance: InstanceId) {
        match self.partition {
            None => {}
            Some(here) if is_home(Some(here), bucket) => wake(&self.peers(), bucket),
            Some(_) => self.permit_state.note_over(bucket, instance),
        }
    }

    /// Notes that calls of this partition wait for this bucket. With `yields` it has room, which is left to others.
    pub(crate) fn note_wait(&self, bucket: &str, yields: bool, until: Option<Timestamp>) {
        self.permit_state.wait(bucket, self.clock.now(), until);
        if yields {
            wake(self.peers().iter().filter(|peer| peer.partition != self.partition), bucket);
        }
    }

    /// For each bucket for which other partitions have waited longer, the number of places that are left to them.
    pub(crate) fn left_to_others(&self) -> HashMap<String, u32> {
        let mut elsewhere = HashMap::new();
        for peer in self.peers().iter().filter(|peer| peer.partition != self.partition) {
            peer.permit_state.add_to(&mut elsewhere, peer.clock.now());
        }
        let now = self.clock.now();
        let left = |(bucket, since): (String, Vec<Timestamp>)| {
            let left = left_to_others(self.permit_state.since(&bucket).unwrap_or(now), since);
            (bucket, left)
        };
        elsewhere.into_iter().map(left).collect()
    }

    /// Deletes permits as soon as they are over, and checks at every poll interval what is left behind.
    pub(crate) async fn permit_loop(self: Arc<Self>) {
        let (Some(work), Some(_)) = (&self.work, self.partition) else { return };
        let mut after = InstanceId(uuid::Uuid::nil());
        let (mut checked_at, mut poll) = (tokio::time::Instant::now(), work.poll);
        while self.may_start() {
            self.release_permits().await;
            if checked_at.elapsed() >= poll {
                (checked_at, poll) = (tokio::time::Instant::now(), work.preference.poll(Turn::PermitEnds));
                if work.has_limits.load(Ordering::Acquire) {
                    after = self.check_permits_after(after).await;
                }
            }
            tokio::time::sleep(BREATH).await;
            tokio::select! {
                () = self.permit_state.has_over.notified() => {}
                () = tokio::time::sleep(poll.saturating_sub(checked_at.elapsed())) => {}
                () = work.stops() => {}
            }
        }
        // What ends during a shutdown is released until the tasks end.
        loop {
            self.release_permits().await;
            self.permit_state.has_over.notified().await;
        }
    }

    /// Checks the next permits that were granted here a moment ago or earlier. Returns the instance after which the next check begins.
    async fn check_permits_after(self: &Arc<Self>, after: InstanceId) -> InstanceId {
        match self.check_permits(after).await {
            Ok((_, next)) => next,
            Err(error) => {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the permits under limits cannot be checked, and this is tried again");
                }
                after
            }
        }
    }

    /// Deletes the permits of calls that have ended here. The checks find those that cannot be deleted now.
    pub(crate) async fn release_permits(self: &Arc<Self>) -> usize {
        let Some(here) = self.partition else { return 0 };
        let mut by_home = BTreeMap::<u32, Vec<(InstanceId, String)>>::new();
        for (bucket, instance) in self.permit_state.take_over() {
            by_home.entry(home_of(&bucket, here.of())).or_default().push((instance, bucket));
        }
        let each = by_home.into_iter().map(|(number, ended)| async move {
            let home = self.peer(number)?;
            let released = self.release_at(&home, &ended).await;
            released.map_err(|error| self.note_home_failure(&home, number, error)).ok()
        });
        join_all(each).await.into_iter().flatten().sum()
    }

    async fn release_at(self: &Arc<Self>, home: &Arc<Engine>, ended: &[(InstanceId, String)]) -> Result<usize, PermitError> {
        let instances: Vec<InstanceId> = ended.iter().map(|(instance, _)| *instance).collect();
        let rows = limit_permits::rows(&mut self.engine_reader().await?.conn(), &instances).await?;
        let buckets = ended.iter().map(|(instance, bucket)| (*instance, bucket.as_str()));
        there(home.delete_permits(buckets.collect(), &rows)).await
    }

    /// Deletes the permits of these instances that are over. Returns their number.
    async fn delete_permits(
        self: &Arc<Self>,
        of: Vec<(InstanceId, &str)>,
        rows: &HashMap<InstanceId, PermitRow>,
    ) -> Result<usize, StoreError> {
        let over = |(instance, bucket)| Some((instance, bucket, over_below(bucket, rows.get(&instance))?));
        let over: Vec<_> = of.into_iter().filter_map(over).collect();
        if over.is_empty() {
            return Ok(0);
        }
        let freed = self.store.release_permits(&over).await?;
        if !freed.is_empty() {
            self.wake_up.due(self.clock.now());
            freed.iter().for_each(|bucket| wake(&self.peers(), bucket));
        }
        Ok(freed.len())
    }

    /// Checks some permits of instances after this one that were granted here a moment ago or earlier, and deletes those that are over. Returns their
    /// number, and the instance after which the next check begins.
    pub(crate) async fn check_permits(self: &Arc<Self>, after: InstanceId) -> Result<(usize, InstanceId), Error> {
        let first = InstanceId(uuid::Uuid::nil());
        if self.partition.is_none() {
            return Ok((0, first));
        }
        let before = self.clock.now() - CHECKED_AFTER;
        let permits = limit_permits::granted_before(&mut self.engine_reader().await?.conn(), after, before, AT_A_TIME).await?;
        let next = permits.last().filter(|_| permits.len() == AT_A_TIME as usize).map_or(first, |last| last.instance);
        let mut by_partition = BTreeMap::<u32, Vec<Permit>>::new();
        for permit in permits {
            by_partition.entry(permit.partition).or_default().push(permit);
        }
        let each = by_partition.into_iter().map(|(number, permits)| async move {
            let peer = self.peer(number)?;
            let checked = self.check_with(&peer, &permits).await;
            checked.map_err(|error| self.note_home_failure(&peer, number, error)).ok()
        });
        Ok((join_all(each).await.into_iter().flatten().sum(), next))
    }

    /// Asks the partition of these instances which permits are over. A claim that is under way for longer than a moment fails after that.
    async fn check_with(self: &Arc<Self>, peer: &Arc<Engine>, permits: &[Permit]) -> Result<usize, PermitError> {
        let instances: Vec<InstanceId> = permits.iter().map(|permit| permit.instance).collect();
        let asked = async { limit_permits::rows(&mut peer.engine_reader().await?.conn(), &instances).await };
        let mut rows = there(asked).await?;
        let open: Vec<Permit> = permits.iter().filter(|permit| is_open(permit, rows.get(&permit.instance))).cloned().collect();
        if !open.is_empty() {
            rows.extend(there(peer.store.fence(&open)).await?);
        }
        let of = permits.iter().map(|permit| (permit.instance, permit.bucket.as_str()));
        let released = self.delete_permits(of.collect(), &rows).await?;
        if released > 0 {
            // What was fenced is due in its partition.
            peer.permit_state.has_waiting.notify_one();
        }
        Ok(released)
    }

    /// Logs that an operation between this partition and another one failed. Both are tried again.
    pub(crate) fn note_home_failure(&self, other: &Engine, number: u32, error: PermitError) {
        let tries = self.permit_state.failed(number);
        let (is_reported, error) = match error {
            PermitError::Here(error) => (self.outage.reports_of_store(&error), error),
            PermitError::There(error) => (other.outage.reports_of_store(&error), error),
        };
        if !is_reported && is_worth_a_line(tries) {
            tracing::warn!(partition = number, tries, %error, "the places under limits of a partition cannot be used, and this is tried again");
        }
    }

    /// The time at which the next permit here is old enough to be checked.
    #[cfg(feature = "testing")]
    pub(crate) async fn next_permit_check(&self) -> Result<Option<Timestamp>, Error> {
        if self.partition.is_none() {
            return Ok(None);
        }
        let mut reader = self.engine_reader().await?;
        let next = limit_permits::next_of_age(&mut reader.conn(), CHECKED_AFTER, self.clock.now()).await?;
        // It has to be older than this.
        Ok(next.map(|next| next + Duration::from_micros(1)))
    }
}
