//! The starts of jobs, and the callers that wait for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use tokio::sync::oneshot;

const SHARDS: usize = 64;

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Instant>>>;

static WAITING: LazyLock<Vec<Waiting>> = LazyLock::new(|| (0..SHARDS).map(|_| Mutex::default()).collect());
static STARTED: AtomicU64 = AtomicU64::new(0);

/// Records that the job runs. The function of each peer's job calls this, and does nothing else.
pub fn job_started(number: u64) {
    STARTED.fetch_add(1, Ordering::Relaxed);
    if let Some(waiting) = shard(number).remove(&number) {
        // Nobody waits any more when the time is over.
        let _ = waiting.send(Instant::now());
    }
}

/// Returns a receiver of the time at which this job starts. Call it before the job is sent.
pub fn start_of(number: u64) -> oneshot::Receiver<Instant> {
    let (sender, receiver) = oneshot::channel();
    shard(number).insert(number, sender);
    receiver
}

/// The number of jobs that have started. A job that started twice counts twice.
pub fn total() -> u64 {
    STARTED.load(Ordering::Relaxed)
}

fn shard(number: u64) -> std::sync::MutexGuard<'static, HashMap<u64, oneshot::Sender<Instant>>> {
    WAITING[number as usize % SHARDS].lock().expect("nothing panics while it is held")
}
