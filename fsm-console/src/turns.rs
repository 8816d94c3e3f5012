//! Turns to render a page: one at a time, and with a rest after each. So the live updates of one console use at most a tenth of one core and of one
//! connection, however many pages are open, as long as a page is rendered within a second. The more are open, the longer each waits for its next
//! update.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// After a turn, nobody has one for so many times its duration.
const RESTS: u32 = 9;
/// The maximum of that time. A slow database must not stop the updates.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// The turns of all open pages of one console, first come first served.
#[derive(Default)]
pub(crate) struct Turns(Arc<Mutex<()>>);

/// A turn. It ends when it is dropped, and the rest follows.
pub(crate) struct Turn {
    began: Instant,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for a turn.
    pub(crate) async fn take(&self) -> Turn {
        let guard = Arc::clone(&self.0).lock_owned().await;
        Turn { began: Instant::now(), guard: Some(guard) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (guard, rest) = (self.guard.take(), (self.began.elapsed() * RESTS).min(LONGEST_REST));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(guard);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn all_turns_together_use_a_tenth_of_the_time_and_each_page_gets_one() {
        let (turns, used) = (Turns::default(), Mutex::new(vec![Duration::ZERO; 20]));
        let began = Instant::now();
        let page = async |page: usize| {
            while began.elapsed() < Duration::from_secs(1) || used.lock().unwrap()[page].is_zero() {
                let _turn = turns.take().await;
                let rendering = Instant::now();
                tokio::time::sleep(Duration::from_millis(2)).await;
                used.lock().unwrap()[page] += rendering.elapsed();
            }
        };
        futures_util::future::join_all((0..20).map(page)).await;
        let (used, elapsed) = (used.lock().unwrap().iter().sum::<Duration>(), began.elapsed());
        // The last turn of all has no rest yet.
        assert!(used <= elapsed / 9, "{used:?} of {elapsed:?}");
    }
}
