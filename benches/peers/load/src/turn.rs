//! One figure under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::watch;

/// How long callers run before they are counted.
pub const WARM_UP: Duration = Duration::from_millis(700);

/// What was sent, what is done, and whether the time is over.
#[derive(Clone)]
pub struct Turn {
    over: Arc<(AtomicBool, Notify)>,
    sent: Arc<AtomicU64>,
    counted: Arc<AtomicU64>,
    /// How many jobs of earlier turns had started.
    before: u64,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { over: Arc::default(), sent: Arc::default(), counted: Arc::default(), before: watch::count() }
    }
}

impl Turn {
    pub fn is_over(&self) -> bool {
        self.over.0.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.over.0.store(true, Ordering::Relaxed);
        self.over.1.notify_waiters();
    }

    pub fn sent(&self, more: u64) {
        self.sent.fetch_add(more, Ordering::Relaxed);
    }

    pub fn all(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn count(&self, more: u64) {
        self.counted.fetch_add(more, Ordering::Relaxed);
    }

    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    pub fn started(&self) -> u64 {
        watch::count() - self.before
    }

    pub fn under_way(&self) -> u64 {
        self.all().saturating_sub(self.started())
    }

    /// Waits for a job's start, but not longer than there is time.
    pub async fn unless_over(&self, start: oneshot::Receiver<Instant>) {
        let told = self.over.1.notified();
        if !self.is_over() {
            tokio::select! { _ = start => {}, () = told => {} }
        }
    }

    /// What is done a second over a while; then the time is over.
    pub async fn rate(&self, each: Duration) -> f64 {
        sleep(WARM_UP).await;
        let (begun, before) = (Instant::now(), self.counted());
        sleep(each).await;
        let rate = (self.counted() - before) as f64 / begun.elapsed().as_secs_f64();
        self.end();
        rate
    }
}
