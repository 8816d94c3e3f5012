//! The next due time that this process knows of, and the pending notifications of other processes. Polling finds all other work.

use std::sync::atomic::{AtomicI64, Ordering};

use fsm_core::time::Timestamp;
use tokio::sync::Notify;

/// The pending notifications of other processes.
#[derive(Default)]
pub(crate) struct PendingNotifications {
    /// A commit of this process made work due.
    pub(crate) certain: Notify,
    /// A caller's transaction contains an event, and only the caller knows when it commits.
    pub(crate) perhaps: Notify,
}

/// The earliest due time that commits of this process made, and the notification of the finder.
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
    /// Records that work becomes due at `at`, and wakes the finder if that is earlier than before.
    pub(crate) fn due(&self, at: Timestamp) {
        if self.earliest_us.fetch_min(at.as_micros(), Ordering::AcqRel) > at.as_micros() {
            self.bell.notify_one();
        }
    }

    /// Returns the earliest time and clears it. The finder reads the due times itself from then on.
    pub(crate) fn take(&self) -> Timestamp {
        Timestamp::from_micros(self.earliest_us.swap(i64::MAX, Ordering::AcqRel))
    }

    /// Returns the earliest time without clearing it.
    pub(crate) fn earliest(&self) -> Timestamp {
        Timestamp::from_micros(self.earliest_us.load(Ordering::Acquire))
    }

    /// Waits until an earlier time is known. This wait has no limit, because there may be none; the finder also scans at each poll
    /// interval.
    pub(crate) async fn notified(&self) {
        self.bell.notified().await;
    }
}
