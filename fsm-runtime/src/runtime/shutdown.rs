//! The graceful shutdown of a runtime, at its end or at a signal of the operating system.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;

use super::Runtime;
use crate::engine::Work;
use crate::error::{Error, ErrorKind};
use crate::store::sessions;

/// The additional time that a shutdown may take after its timeout, to write releases and to deregister.
const LAST_WRITES: Duration = Duration::from_secs(2);

impl Runtime {
    /// Works until SIGTERM or SIGINT (Ctrl-C), then [shuts down](Runtime::shutdown). A second signal ends the work at once, as a crash
    /// would: running attempts are lost.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        let mut signals = Signals::listen()
            .map_err(|error| Error::other(ErrorKind::System, format!("the process cannot listen for signals: {error}")))?;
        // This wait has no limit: the process works until a signal arrives.
        let signal = signals.next().await;
        tracing::info!(signal, "shutting down; a second signal ends at once");
        let engine = Arc::clone(&self.engine);
        tokio::select! {
            ended = self.shutdown() => ended,
            signal = signals.next() => {
                tracing::warn!(signal, "ended at once; what executes is lost");
                engine.kill();
                Ok(())
            }
        }
    }

    /// Shuts down gracefully: stops claiming, waits for running attempts up to the [shutdown timeout](Builder::shutdown_timeout), releases
    /// the rest, and deregisters the worker. A released attempt uses no retry.
    ///
    /// Returns at most two seconds after the shutdown timeout, even if the database does not answer. Returns an `ErrorKind::Stopping` error
    /// if attempts are left that could not be reported or released. Other workers treat them as lost when this process's lease has expired.
    pub async fn shutdown(self) -> Result<(), Error> {
        let engine = &self.engine;
        let limit = self.shutdown_timeout.saturating_add(LAST_WRITES);
        let ended = tokio::time::timeout(limit, self.end()).await;
        let left = engine.work.as_ref().map_or((0, 0), Work::left);
        engine.kill();
        match (ended, left) {
            (Ok(Ok(())), (0, 0)) => Ok(()),
            (Ok(Err(error)), (0, 0)) => {
                tracing::warn!(%error, "the worker session was not deregistered; it ends with its lease");
                Ok(())
            }
            (Err(_), (0, 0)) => {
                tracing::warn!("the worker session was not deregistered: the database does not answer; it ends with its lease");
                Ok(())
            }
            (_, left) => Err(self.incomplete(left)),
        }
    }

    /// The whole shutdown, without a time limit.
    async fn end(&self) -> Result<(), Error> {
        let engine = &self.engine;
        engine.drain(self.shutdown_timeout).await;
        engine.queue.close();
        engine.queue.emptied().await;
        if let Some(work) = &engine.work {
            work.session.stop();
            let mut connection = engine.store.dedicated().await?;
            sessions::leave(&mut connection.conn(), work.session.id()).await?;
        }
        engine.store.close().await;
        Ok(())
    }

    fn incomplete(&self, (unreported, unreleased): (usize, usize)) -> Error {
        let lease = self.engine.work.as_ref().map_or(Duration::ZERO, |work| work.session.lease());
        let text = format!(
            "the shutdown is not complete, for the database does not answer: {unreported} attempts that ended are not reported, and \
             {unreleased} that ran are not released; other workers take them over once the lease of this process has ended, within {}",
            duration::display(lease)
        );
        tracing::error!("{text}");
        Error::other(ErrorKind::Stopping, text)
    }
}

/// The signals that stop a process.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(unix)]
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    #[cfg(not(unix))]
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> &'static str {
        // If no signal handler can be installed, Ctrl-C ends the process directly.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}
