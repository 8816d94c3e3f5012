//! The end of a runtime: by a signal, or by its program.

use super::Runtime;
use super::shutdown::ShutdownHandle;
use super::signals::Signals;
use crate::error::{Error, ErrorKind};

impl Runtime {
    /// Works until SIGTERM or SIGINT (Ctrl-C), or until a [`ShutdownHandle`] is used, and then [shuts down](Runtime::shutdown). A second signal
    /// ends the work at once, as a crash would: running attempts are lost.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        let mut signals = Signals::listen()
            .map_err(|error| Error::other(ErrorKind::System, format!("the process cannot listen for signals: {error}")))?;
        // This wait has no limit: the process works until then.
        let signal = tokio::select! {
            signal = signals.next() => Some(signal),
            () = self.shutdown.requested() => None,
        };
        tracing::info!(signal, "the shutdown begins; the next signal ends at once");
        let signal = tokio::select! {
            ended = self.shutdown.shutdown() => return ended,
            signal = signals.next() => signal,
        };
        tracing::warn!(signal, "ended at once; running attempts are lost");
        self.engines.kill();
        Ok(())
    }

    /// Shuts down gracefully: stops claiming, waits for running attempts up to the [shutdown timeout](super::Builder::shutdown_timeout), releases
    /// the rest, and deregisters the worker. A released attempt uses no retry.
    ///
    /// Returns at most two seconds after the shutdown timeout, even if the database does not answer. Returns an `ErrorKind::Stopping` error
    /// if attempts are left that could not be reported or released. Other workers treat them as lost when this process's lease has expired.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.shutdown.shutdown().await
    }

    /// A handle for a program with a server of its own: it begins the graceful shutdown from anywhere, and its `requested()` completes when the server must stop. Keep
    /// the runtime itself: dropping it ends the work at once.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }
}
