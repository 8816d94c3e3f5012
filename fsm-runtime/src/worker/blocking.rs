//! Runs a verb that blocks its thread, on a thread of tokio's blocking pool.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

use crate::context::{Ctx, RunningVerb};
use crate::failure::Failure;
use crate::guard;
use crate::registry::{Input, RunBlocking, Running};

/// The place where a thread leaves the verb's requests when the verb has returned.
pub(super) type Returned = Arc<Mutex<Option<RunningVerb>>>;

/// Waits for a place and runs the verb. If the future is dropped, the thread goes on and keeps its place until the verb returns; its result is
/// dropped.
pub(super) fn on_a_thread(
    run: RunBlocking,
    mut running: RunningVerb,
    (event, record): (Vec<u8>, Option<Vec<u8>>),
    places: Arc<Semaphore>,
    returned: Returned,
) -> Running<'static> {
    Box::pin(async move {
        // Limited by the timeout of the attempt. Without one, by the end of a verb that runs.
        let place = places.acquire_owned().await.map_err(|_| Failure::new("the process ends"))?;
        let span = tracing::Span::current();
        let thread = tokio::task::spawn_blocking(move || {
            let _in_span = span.enter();
            let _place = place;
            let ended = run(&mut Ctx::new(&mut running), Input { event: &event, record: record.as_deref() });
            *guard::lock(&returned) = Some(running);
            ended
        });
        match thread.await {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => Err(Failure::new("the thread of the verb did not start: the process ends")),
            },
        }
    })
}
