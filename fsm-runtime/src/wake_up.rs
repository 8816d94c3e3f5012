//! When the next moment comes due, as far as this process knows, and what others are to be told: polling finds the rest.

use std::sync::atomic::{AtomicI64, Ordering};

use fsm_core::time::Timestamp;
use tokio::sync::Notify;

/// What other processes are to be told.
#[derive(Default)]
pub(crate) struct PendingNotifications {
    /// A commit of this process made something due.
    pub(crate) certain: Notify,
    /// Somebody else's transaction has an event in it, and only they know when it is committed.
    pub(crate) perhaps: Notify,
}

/// The earliest moment that commits of this process made, and a bell for the finder.
pub(crate) struct WakeUp {
    earliest_us: AtomicI64,
    bell: Notify,
}

impl Default for WakeUp {
    fn default() -> WakeUp {
        WakeUp { earliest_us: AtomicI64::new(i64::MAX), bell: Notify::new() }
    }
}

impl WakeUp {
    /// Something comes due at this moment.
    pub(crate) fn due(&self, at: Timestamp) {
        if self.earliest_us.fetch_min(at.as_micros(), Ordering::AcqRel) > at.as_micros() {
            self.bell.notify_one();
        }
    }

    /// Takes the earliest moment; the finder looks for itself from now on.
    pub(crate) fn take(&self) -> Timestamp {
        Timestamp::from_micros(self.earliest_us.swap(i64::MAX, Ordering::AcqRel))
    }

    /// The earliest moment, which stays.
    pub(crate) fn earliest(&self) -> Timestamp {
        Timestamp::from_micros(self.earliest_us.load(Ordering::Acquire))
    }

    /// Waits until an earlier moment is known. No bound: there may be none. The finder looks at each poll interval.
    pub(crate) async fn notified(&self) {
        self.bell.notified().await;
    }
}
