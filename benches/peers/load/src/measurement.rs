//! The counters of one measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::starts;

/// The time for which callers run before their jobs are counted.
pub const WARM_UP: Duration = Duration::from_millis(700);

/// The numbers of jobs that were sent and done, and whether the time is over.
#[derive(Clone)]
pub struct Measurement {
    over: Arc<(AtomicBool, Notify)>,
    sent: Arc<AtomicU64>,
    done_count: Arc<AtomicU64>,
    /// The number of jobs that had started in earlier measurements.
    before: u64,
}

impl Default for Measurement {
    fn default() -> Measurement {
        Measurement { over: Arc::default(), sent: Arc::default(), done_count: Arc::default(), before: starts::total() }
    }
}

impl Measurement {
    pub fn is_over(&self) -> bool {
        self.over.0.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.over.0.store(true, Ordering::Relaxed);
        self.over.1.notify_waiters();
    }

    pub fn add_sent(&self, more: u64) {
        self.sent.fetch_add(more, Ordering::Relaxed);
    }

    pub fn total_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn add_done(&self, more: u64) {
        self.done_count.fetch_add(more, Ordering::Relaxed);
    }

    pub fn done_count(&self) -> u64 {
        self.done_count.load(Ordering::Relaxed)
    }

    pub fn started(&self) -> u64 {
        starts::total() - self.before
    }

    pub fn not_started(&self) -> u64 {
        self.total_sent().saturating_sub(self.started())
    }

    /// Waits until the job starts or the time is over.
    pub async fn wait_unless_over(&self, start: oneshot::Receiver<Instant>) {
        let told = self.over.1.notified();
        if !self.is_over() {
            tokio::select! { _ = start => {}, () = told => {} }
        }
    }

    /// Measures the jobs per second, and then ends the measurement.
    pub async fn rate(&self, each: Duration) -> f64 {
        sleep(WARM_UP).await;
        let (begun, before) = (Instant::now(), self.done_count());
        sleep(each).await;
        let rate = (self.done_count() - before) as f64 / begun.elapsed().as_secs_f64();
        self.end();
        rate
    }
}
