//! The signs between a verb and the engine while it runs: that it should end, and how far it is.

use std::future::Future;

use serde::Serialize;

use super::Ctx;
use crate::error::Error;
use crate::progress::LARGEST;

impl<V> Ctx<'_, V> {
    /// Completes when this attempt should end: an operator cancelled the instance, an event interrupts the call, the attempt timed out, or
    /// another process closed the attempt. A process learns what another process did within a third of a lease, and mostly within
    /// milliseconds if an event interrupts. The future does not borrow the context, so that it can stand in a `select!` beside work that uses
    /// the context.
    ///
    /// An attempt that succeeds nevertheless counts. One that fails is not retried if an event interrupts the call.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<V> {
        let mut cancelled = self.running.cancelled.clone();
        async move {
            // This wait has no limit, because cancellation may never come. The verb decides what it waits for besides.
            if cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns true once [`cancelled`](Ctx::cancelled) completes. A verb with `#[verb(blocking)]` checks it between two pieces of its work.
    pub fn is_cancelled(&self) -> bool {
        *self.running.cancelled.borrow()
    }

    /// Shows how far the verb is: `fsm show`, the console and [`OpenCall::progress`](crate::handle::activity::OpenCall) have the value and
    /// its time. An attempt of a verb with `#[verb(heartbeat = "30s")]` fails if it shows no progress for that long.
    ///
    /// The call only stores the value in memory. The engine writes the last value of each attempt at most once a second, together with those
    /// of other attempts. It is forgotten when the attempt ends, and no decision depends on it.
    ///
    /// Returns an error if the value does not encode as JSON, or has more than 4 KiB.
    pub fn progress(&mut self, value: impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(&value).map_err(|error| Error::input(format!("the progress does not encode: {error}")))?;
        if json.len() > LARGEST {
            return Err(Error::input(format!("the progress has {} bytes of JSON; at most {LARGEST} are stored", json.len())));
        }
        self.running.progress.show(json, self.now());
        self.running.environment.has_progress.notify_one();
        Ok(())
    }
}
