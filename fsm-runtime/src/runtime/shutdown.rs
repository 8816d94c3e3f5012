//! The graceful shutdown of a runtime, and the handle by which a program begins it from anywhere.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;
use tokio::sync::{OnceCell, watch};

use crate::engine::{Engine, Work};
use crate::error::{Error, ErrorKind};

/// The additional time that a shutdown may take after its timeout, to write releases and to deregister.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// A handle to the shutdown of a runtime, for programs with a server of their own. Cheap to clone.
///
/// ```no_run
/// # use fsm_runtime::{error::Error, runtime::Runtime};
/// # async fn serve(until: impl Future<Output = ()> + Send + 'static) {}
/// # async fn program() -> Result<(), Error> {
/// let runtime = Runtime::builder().start().await?;
/// let server = tokio::spawn(serve(runtime.shutdown_handle().requested()));    // axum::serve(…).with_graceful_shutdown(…)
/// runtime.run_until_signal().await?;                                          // SIGTERM stops the server and the workers
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ShutdownHandle {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<Engine>,
    timeout: Duration,
    is_requested: watch::Sender<bool>,
    /// The text of the error, if the shutdown was not complete.
    outcome: OnceCell<Result<(), String>>,
}

impl ShutdownHandle {
    pub(super) fn new(engine: Arc<Engine>, timeout: Duration) -> ShutdownHandle {
        let shared = Shared { engine, timeout, is_requested: watch::Sender::new(false), outcome: OnceCell::new() };
        ShutdownHandle { shared: Arc::new(shared) }
    }

    /// Shuts the runtime down gracefully, as [`Runtime::shutdown`](super::Runtime::shutdown), and returns when that is done. All callers get the
    /// outcome of the one shutdown. If the runtime is in [`run_until_signal`](super::Runtime::run_until_signal), that returns too.
    pub async fn shutdown(&self) -> Result<(), Error> {
        // The process is not ready from now on, so that a load balancer sends it no new requests.
        self.shared.engine.stop_starting();
        self.shared.is_requested.send_replace(true);
        let outcome = self.shared.outcome.get_or_init(|| self.shared.shut_down()).await;
        outcome.clone().map_err(|text| Error::other(ErrorKind::Stopping, text))
    }

    /// Resolves once the shutdown has begun: by this or another handle, by a signal that
    /// [`run_until_signal`](super::Runtime::run_until_signal) waits for, or by `Runtime::shutdown`. A server stops accepting requests then.
    ///
    /// The future does not borrow the handle.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut is_requested = self.shared.is_requested.subscribe();
        async move {
            // This wait has no limit, because a shutdown may never be requested.
            if is_requested.wait_for(|is_requested| *is_requested).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns true once the shutdown has begun.
    pub fn is_requested(&self) -> bool {
        *self.shared.is_requested.borrow()
    }
}

impl Shared {
    async fn shut_down(&self) -> Result<(), String> {
        let engine = &self.engine;
        let limit = self.timeout.saturating_add(LAST_WRITES);
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
        engine.drain(self.timeout).await;
        engine.queue.close();
        engine.queue.emptied().await;
        if let Some(work) = &engine.work {
            work.session.stop();
            let mut connection = engine.store.dedicated().await?;
            fsm_store::sessions::leave(&mut connection.conn(), work.session.id()).await?;
        }
        engine.store.close().await;
        Ok(())
    }

    fn incomplete(&self, (unreported, unreleased): (usize, usize)) -> String {
        let lease = self.engine.work.as_ref().map_or(Duration::ZERO, |work| work.session.lease());
        let text = format!(
            "the shutdown is not complete, for the database does not answer: {unreported} attempts that ended are not reported, and \
             {unreleased} that ran are not released; other workers take them over once the lease of this process has ended, within {}",
            duration::display(lease)
        );
        tracing::error!(reason = text, "the shutdown is not complete");
        text
    }
}
