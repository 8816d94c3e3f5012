//! Who waits for a job to start.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use tokio::sync::oneshot;

const SHARDS: usize = 64;

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Instant>>>;

static WAITING: LazyLock<Vec<Waiting>> = LazyLock::new(|| (0..SHARDS).map(|_| Mutex::default()).collect());
static STARTED: AtomicU64 = AtomicU64::new(0);

/// The job runs. Each peer's function says it, and does nothing else.
pub fn started(number: u64) {
    STARTED.fetch_add(1, Ordering::Relaxed);
    if let Some(waiting) = shard(number).remove(&number) {
        // Nobody waits any more when the time is over.
        let _ = waiting.send(Instant::now());
    }
}

/// When this job starts; to be called before it is sent.
pub fn start_of(number: u64) -> oneshot::Receiver<Instant> {
    let (sender, receiver) = oneshot::channel();
    shard(number).insert(number, sender);
    receiver
}

/// How many jobs have started, those that started twice counted twice.
pub fn count() -> u64 {
    STARTED.load(Ordering::Relaxed)
}

fn shard(number: u64) -> std::sync::MutexGuard<'static, HashMap<u64, oneshot::Sender<Instant>>> {
    WAITING[number as usize % SHARDS].lock().expect("nothing panics while it is held")
}
