//! Restarts tasks of an engine that panic, and logs the panics.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::guard;

/// The shortest and longest wait before a task that panicked is restarted. The wait doubles, and is short again after the task ran for
/// longer than the longest wait.
const WAITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// Logs a panic of an engine task. The logging subscriber may itself have panicked.
pub(crate) fn log_panic(task: &str, text: &str) {
    let _ = guard::guarded("the subscriber", || tracing::error!(task, panic = text, "a task of the engine panicked"));
}

impl Engine {
    /// Runs a task until it returns. It is restarted after each panic.
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
                    Err(text) => log_panic(name, &text),
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
