//! The preference of this process for a partition, and the times at which its tasks look into one that it does not prefer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fsm_core::ids::SessionId;
use fsm_core::partition::Partition;
use fsm_core::preference::{look_interval, overdue_after, prefers};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::guard;

/// The tasks that look into a partition that is not preferred. They look shortly one after the other, and so use one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    Finder,
    Outbox,
    PartitionOutbox,
    Permits,
    PermitEnds,
    Schedules,
    Observer,
    Sweeper,
}

/// The time between two of them.
const BETWEEN_TURNS: Duration = Duration::from_millis(75);

/// The preference of this process for one partition. A database without partitions is always preferred.
pub(crate) struct Preference {
    partition: Option<Partition>,
    poll: Duration,
    is_preferred: AtomicBool,
    /// All tasks look at about the same times, so that they share connections that are closed in between.
    first_look: Instant,
    /// The time of an earlier look: after a notification, or when due work becomes overdue.
    heard: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Preference {
    /// The preference until the other sessions are known: the process may be alone.
    pub(crate) fn new(partition: Option<Partition>, poll: Duration) -> Preference {
        // The partitions are not all looked at in one moment.
        let place = partition.map_or(0.0, |partition| f64::from(partition.number()) / f64::from(partition.of()));
        let first_look = Instant::now() + look_interval(poll).mul_f64(place);
        Preference { partition, poll, is_preferred: true.into(), first_look, heard: Mutex::default(), changed: Notify::new() }
    }

    /// Returns true if this process prefers the partition.
    pub(crate) fn is_preferred(&self) -> bool {
        self.is_preferred.load(Ordering::Acquire)
    }

    /// Records the other live sessions that serve the same code.
    pub(crate) fn note(&self, me: SessionId, others: impl IntoIterator<Item = SessionId>) {
        let Some(partition) = self.partition.map(Partition::number) else { return };
        let is_preferred = prefers(me, others, partition);
        if self.is_preferred.swap(is_preferred, Ordering::AcqRel) != is_preferred {
            tracing::debug!(partition, is_preferred, "the preference of this process for the partition changed");
            self.changed.notify_one();
        }
    }

    /// The wait of a task that polls: the poll interval, or until the next look.
    pub(crate) fn poll(&self, turn: Turn) -> Duration {
        self.poll_from(Instant::now(), turn)
    }

    fn poll_from(&self, now: Instant, turn: Turn) -> Duration {
        if self.is_preferred() {
            return self.poll;
        }
        // A moment later, so that a look at this moment is not repeated at once.
        self.at_a_look(now + Duration::from_millis(1), turn).saturating_duration_since(now)
    }

    /// The time of a task that is to run at `at`: in a partition that is not preferred, the first look after that.
    pub(crate) fn at_a_look(&self, at: Instant, turn: Turn) -> Instant {
        if self.is_preferred() {
            return at;
        }
        let first = self.first_look + BETWEEN_TURNS * turn as u32;
        let Some(past) = at.checked_duration_since(first) else { return first };
        let interval = look_interval(self.poll).as_micros().max(1);
        let left = (interval - past.as_micros() % interval) % interval;
        at + Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    /// The wait of the task that looks for due work. It looks earlier after a notification, when the work is overdue.
    pub(crate) fn poll_for_work(&self) -> Duration {
        self.poll_for_work_from(Instant::now())
    }

    fn poll_for_work_from(&self, now: Instant) -> Duration {
        let heard = guard::lock(&self.heard).map(|at| at.saturating_duration_since(now));
        heard.unwrap_or(Duration::MAX).min(self.poll_from(now, Turn::Finder))
    }

    /// The time for which work is due before this process claims it here.
    pub(crate) fn overdue_after(&self) -> Duration {
        if self.is_preferred() { Duration::ZERO } else { overdue_after(self.poll) }
    }

    /// Work may be due in the partition. This process looks when it is overdue.
    pub(crate) fn hear(&self) {
        self.hear_at(Instant::now());
    }

    fn hear_at(&self, now: Instant) {
        if self.look_by(now.checked_add(overdue_after(self.poll))) {
            self.changed.notify_one();
        }
    }

    /// Work is overdue after this time if nobody claims it. This process looks then.
    pub(crate) fn look_in(&self, wait: Duration) {
        self.look_by(Instant::now().checked_add(wait));
    }

    /// Returns true if no look was planned before.
    fn look_by(&self, at: Option<Instant>) -> bool {
        let mut heard = guard::lock(&self.heard);
        let is_new = heard.is_none() && at.is_some();
        *heard = [*heard, at].into_iter().flatten().min();
        is_new
    }

    /// A look for due work begins.
    pub(crate) fn look(&self) {
        *guard::lock(&self.heard) = None;
    }

    /// Waits until the time of the next look for due work may have changed. This wait has no limit; the caller has one.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    fn sessions() -> Vec<SessionId> {
        (0..20).map(|_| SessionId(Uuid::new_v4())).collect()
    }

    /// A preference of a session that many others exceed.
    fn not_preferred(number: u32) -> Preference {
        let preference = Preference::new(Partition::new(number, 4), POLL);
        let all = sessions();
        let last =
            all.iter().find(|me| !prefers(**me, all.iter().copied().filter(|other| other != *me), number)).expect("two are preferred");
        preference.note(*last, all.iter().copied().filter(|other| other != last));
        preference
    }

    #[test]
    fn all_tasks_of_a_partition_that_is_not_preferred_look_at_the_same_times() {
        let preference = not_preferred(2);
        assert!(!preference.is_preferred());
        let first = preference.first_look;
        assert_eq!(preference.poll_from(first - POLL, Turn::Finder), POLL);
        assert_eq!(preference.poll_from(first, Turn::Finder), POLL * 10, "a look is not repeated");
        assert_eq!(preference.poll_from(first + POLL * 13, Turn::Finder), POLL * 7);
        assert_eq!(preference.at_a_look(first + POLL * 13, Turn::Finder), first + POLL * 20);
        assert_eq!(preference.at_a_look(first + POLL * 20, Turn::Finder), first + POLL * 20);
        assert_eq!(preference.at_a_look(first + POLL * 20, Turn::Outbox), first + POLL * 20 + BETWEEN_TURNS);
        // In a quarter of the time the partition before looks.
        let between = first.saturating_duration_since(not_preferred(1).first_look);
        assert!(between <= POLL * 10 / 4 && between > POLL, "{between:?}");
        preference.note(SessionId(Uuid::new_v4()), []);
        assert_eq!((preference.poll(Turn::Outbox), preference.overdue_after()), (POLL, Duration::ZERO), "it is the only one now");
        assert_eq!(preference.at_a_look(first, Turn::Sweeper), first);
    }

    #[test]
    fn after_a_notification_overdue_work_is_looked_for_once() {
        let preference = not_preferred(0);
        let heard = preference.first_look;
        preference.hear_at(heard);
        preference.hear_at(heard + POLL);
        assert_eq!(preference.poll_for_work_from(heard + POLL), POLL, "the first notification counts");
        preference.look();
        assert_eq!(preference.poll_for_work_from(heard + POLL), POLL * 9);
    }

    #[test]
    fn a_database_without_partitions_is_always_preferred() {
        let preference = Preference::new(None, POLL);
        preference.note(SessionId(Uuid::nil()), sessions());
        assert!(preference.is_preferred());
    }
}
