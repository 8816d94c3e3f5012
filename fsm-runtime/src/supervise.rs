//! Keeps the tasks of an engine going: one that panics is told of and started again.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::guard;

/// The wait before a task that panicked is started again: doubling from the one to the other, and short again once it went on for longer.
const WAITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// Tells that a task of the engine panicked. The subscriber may be what panicked.
pub(crate) fn tell(task: &str, text: &str) {
    let _ = guard::guarded("the subscriber", || tracing::error!(task, panic = text, "a task of the engine panicked"));
}

impl Engine {
    /// Runs a task until it returns. While it panics, it is started again.
    pub(crate) fn keep_running<F>(self: &Arc<Self>, name: &'static str, task: impl Fn(Arc<Engine>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(self);
        self.spawn(async move {
            let mut wait = WAITS.0;
            loop {
                let begun = tokio::time::Instant::now();
                match guard::to_its_end(name, Box::pin(task(Arc::clone(&engine)))).await {
                    Ok(()) => return,
                    Err(text) => tell(name, &text),
                }
                if begun.elapsed() > WAITS.1 {
                    wait = WAITS.0;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAITS.1);
            }
        });
    }
}
