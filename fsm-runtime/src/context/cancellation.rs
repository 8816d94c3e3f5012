//! Cancellation of a running verb: the future that completes when its attempt should end.

use std::future::Future;

use super::Ctx;

impl<V> Ctx<'_, V> {
    /// Completes when this attempt should end: an operator cancelled the instance, an event interrupts the call, the attempt timed out, or
    /// another process closed the attempt. If another process did it, this takes up to a third of a lease, and usually
    /// milliseconds if an event interrupts. The future does not borrow the context, so that it can stand in a `select!` beside work that uses
    /// the context.
    ///
    /// An attempt that succeeds nevertheless counts. One that fails is not retried if an event interrupts the call.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<V> {
        let mut cancelled = self.running.cancelled.clone();
        async move {
            // This wait has no limit, because cancellation may never come. The verb decides what else it waits for.
            if cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns true once [`cancelled`](Ctx::cancelled) completes. A verb with `#[verb(blocking)]` checks it between two pieces of its work.
    pub fn is_cancelled(&self) -> bool {
        *self.running.cancelled.borrow()
    }
}
