//! Runs a verb within its timeout and converts its panics into failures.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::guard;
use crate::metrics::AttemptOutcome;
use crate::registry::Running;

/// The time that a verb has to clean up after its timeout.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Returns the verb's result, or a failure after its timeout. A panic in the verb, or in the drop of its future, is a failure like any
/// other. After the timeout, the verb is informed through `ctx.cancelled()` and gets a short time to clean up. The attempt has then timed
/// out, whatever the verb returns.
pub(super) async fn bounded(
    running: Running<'_>,
    timeout: Option<Duration>,
    cancel: &watch::Sender<bool>,
) -> (Result<Option<Vec<u8>>, Failure>, AttemptOutcome) {
    let mut verb = AssertUnwindSafe(running).catch_unwind();
    let in_time = match timeout {
        None => Some((&mut verb).await),
        Some(limit) => tokio::time::timeout(limit, &mut verb).await.ok(),
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
            let limit = fsm_core::duration::display(timeout.unwrap_or_default());
            let and_then = dropped.err().map(|text| format!("; and {text}")).unwrap_or_default();
            (Err(Failure::new(format!("the attempt took longer than its timeout of {limit}{and_then}"))), AttemptOutcome::Timeout)
        }
    }
}
