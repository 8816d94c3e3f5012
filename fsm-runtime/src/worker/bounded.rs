//! Runs a verb within its timeout and converts its panics into failures.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use fsm_core::duration::display;
use futures_util::FutureExt;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::guard;
use crate::metrics::AttemptOutcome;
use crate::progress::ProgressOfAttempt;
use crate::registry::Running;

/// The time that a verb has to clean up after its timeout.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The bounds of one attempt.
pub(super) struct Bounds<'b> {
    /// The maximum time of the attempt.
    pub(super) timeout: Option<Duration>,
    /// The maximum time without progress.
    pub(super) heartbeat: Option<Duration>,
    pub(super) progress: &'b ProgressOfAttempt,
}

impl Bounds<'_> {
    /// Waits until a bound is exceeded, and returns the error.
    async fn exceeded(&self) -> String {
        let too_long = async {
            // Without a bound this wait has no limit.
            let Some(limit) = self.timeout else { return std::future::pending().await };
            tokio::time::sleep(limit).await;
            format!("the attempt took longer than its timeout of {}", display(limit))
        };
        let silent = async {
            let Some(limit) = self.heartbeat else { return std::future::pending().await };
            while let Some(left) = limit.checked_sub(self.progress.silence()).filter(|left| !left.is_zero()) {
                tokio::time::sleep(left).await;
            }
            format!("the attempt showed no progress for {}", display(limit))
        };
        tokio::select! { biased; why = too_long => why, why = silent => why }
    }
}

/// Returns the verb's result, or a failure after its timeout, or after it has shown no progress for too long. A panic in the verb, or in the
/// drop of its future, is a failure like any other. Before the end, the verb is informed through `ctx.cancelled()` and gets a short time to
/// clean up. The attempt has then failed, whatever the verb returns.
pub(super) async fn bounded(
    running: Running<'_>,
    bounds: Bounds<'_>,
    cancel: &watch::Sender<bool>,
) -> (Result<Option<Vec<u8>>, Failure>, AttemptOutcome) {
    let mut verb = AssertUnwindSafe(running).catch_unwind();
    let (in_time, why) = tokio::select! {
        biased;
        ended = &mut verb => (Some(ended), String::new()),
        why = bounds.exceeded() => (None, why),
    };
    let mut late = None;
    if in_time.is_none() {
        let _ = guard::guarded("a waker", || cancel.send_replace(true));
        // The context itself holds one receiver. A second one exists only if the verb called `ctx.cancelled()`.
        if cancel.receiver_count() > 1 {
            late = tokio::time::timeout(LAST_MOMENT, &mut verb).await.ok();
        }
    }
    let late = guard::dropped("the end of the verb", late.map(|late| late.map_err(guard::text_of)));
    let dropped = guard::dropped("the end of the verb", verb).and(late);
    match (in_time, dropped) {
        (Some(Ok(ended)), Ok(())) => {
            let outcome = match &ended {
                Ok(_) => AttemptOutcome::Success,
                Err(failure) if failure.snoozes_for().is_some() => AttemptOutcome::Snoozed,
                Err(_) => AttemptOutcome::Error,
            };
            (ended, outcome)
        }
        (Some(Ok(ended)), Err(text)) => {
            let _ = guard::dropped("its error", ended);
            (Err(Failure::new(text)), AttemptOutcome::Panic)
        }
        (Some(Err(panic)), _) => (Err(Failure::new(format!("the verb panicked: {}", guard::text_of(panic)))), AttemptOutcome::Panic),
        (None, dropped) => {
            let and_then = dropped.err().map(|text| format!("; and {text}")).unwrap_or_default();
            (Err(Failure::new(format!("{why}{and_then}"))), AttemptOutcome::Timeout)
        }
    }
}
