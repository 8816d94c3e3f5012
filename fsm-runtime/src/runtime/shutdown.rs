//! The graceful shutdown of a runtime, and the handle by which a program begins it from anywhere.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::duration;
use futures_util::future::join_all;
use tokio::sync::{OnceCell, watch};

use crate::engine::{Engine, Work};
use crate::engines::Engines;
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
    engines: Engines,
    timeout: Duration,
    is_requested: watch::Sender<bool>,
    /// The text of the error, if the shutdown was not complete.
    outcome: OnceCell<Result<(), String>>,
}

impl ShutdownHandle {
    pub(super) fn new(engines: Engines, timeout: Duration) -> ShutdownHandle {
        let shared = Shared { engines, timeout, is_requested: watch::Sender::new(false), outcome: OnceCell::new() };
        ShutdownHandle { shared: Arc::new(shared) }
    }

    /// Shuts the runtime down gracefully, as [`Runtime::shutdown`](super::Runtime::shutdown), and returns when that is done. All callers get the
    /// outcome of the one shutdown. If the runtime is in [`run_until_signal`](super::Runtime::run_until_signal), that returns too.
    pub async fn shutdown(&self) -> Result<(), Error> {
        // The process is not ready from now on, so that a load balancer sends it no new requests.
        self.shared.engines.all().iter().for_each(|engine| engine.stop_starting());
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
        let limit = self.timeout.saturating_add(LAST_WRITES);
        let each = self.engines.all().iter().map(|engine| tokio::time::timeout(limit, end(engine, self.timeout)));
        let ended = join_all(each).await;
        let left = self.engines.work().map(Work::left).fold((0, 0), |sum, left| (sum.0 + left.0, sum.1 + left.1));
        self.engines.kill();
        if left != (0, 0) {
            return Err(self.incomplete(left));
        }
        for ended in ended {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the worker session was not deregistered; it ends with its lease"),
                Err(_) => tracing::warn!("the worker session was not deregistered: the database does not answer; it ends with its lease"),
            }
        }
        Ok(())
    }

    fn incomplete(&self, (unreported, unreleased): (usize, usize)) -> String {
        let lease = self.engines.work().next().map_or(Duration::ZERO, |work| work.session.lease());
        let text = format!(
            "the shutdown is not complete, for the database does not answer: {unreported} attempts that ended are not reported, and \
             {unreleased} that ran are not released; other workers take them over once the lease of this process has ended, within {}",
            duration::display(lease)
        );
        tracing::error!(reason = text, "the shutdown is not complete");
        text
    }
}

/// The whole shutdown of one engine, without a time limit.
async fn end(engine: &Arc<Engine>, timeout: Duration) -> Result<(), Error> {
    if engine.work.as_ref().is_some_and(|work| !work.session.has_begun()) {
        // A partition that was never reached: nothing runs there, and its callers get an error at once.
        engine.kill();
        return Ok(());
    }
    engine.drain(timeout).await;
    if let Some(work) = &engine.work {
        // Events that are claimed for other partitions are released before the connections are closed.
        drop(work.delivers.lock().await);
    }
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
