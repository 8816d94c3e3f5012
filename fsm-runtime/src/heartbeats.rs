//! The thread of a process that renews the leases of all its sessions, so that a busy or blocked async runtime loses none of them.
//!
//! The sessions of partitions on one server share a connection. A session that is not renewed on it soon is renewed on a connection of its own,
//! so that a partition that hangs delays no other.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fsm_store::error::{Class, StoreError};
use fsm_store::open::Store;
use fsm_store::shared_connection::SharedConnection;
use fsm_store::tx::DedicatedConnection;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::committer::retry::backoff;
use crate::guard;
use crate::metrics;
use crate::outage::Repeated;
use crate::session::{Session, measure};

/// The longest wait before the heartbeats of a session are restarted.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The thread. It ends when all its sessions are stopped and this value is dropped.
#[derive(Clone)]
pub(crate) struct Heartbeats {
    thread: Handle,
    connections: SharedConnections,
    /// The thread lives as long as a clone of this.
    alive: mpsc::Sender<Infallible>,
}

/// The connections that sessions share, by server. The lock is held while a session is renewed, and while the connection is opened.
type SharedConnections = Arc<Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<Option<SharedConnection>>>>>>;

/// A session whose lease is renewed.
struct Renewed<U> {
    session: Session,
    store: Store,
    clock: Clock,
    unreported: U,
    connections: SharedConnections,
}

/// The connection of one session's heartbeats.
enum Connection {
    /// That of its server.
    Shared,
    /// Its own, which may have to be opened.
    Own(Option<DedicatedConnection>),
}

impl Heartbeats {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Heartbeats> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = runtime.handle().clone();
        let (alive, mut ended) = mpsc::channel(1);
        std::thread::Builder::new().name("fsm-lease".into()).spawn(move || {
            // Nothing is ever sent: this ends when all senders are dropped.
            runtime.block_on(ended.recv());
            runtime.shutdown_background();
        })?;
        Ok(Heartbeats { thread, connections: SharedConnections::default(), alive })
    }

    /// Renews the lease until the session is stopped. `unreported` counts the attempts whose ends the database does not accept.
    pub(crate) fn keep_alive(&self, session: Session, store: Store, clock: Clock, unreported: impl Fn() -> usize + Send + Sync + 'static) {
        let renewed = Arc::new(Renewed { session, store, clock, unreported, connections: Arc::clone(&self.connections) });
        let alive = self.alive.clone();
        self.thread.spawn(async move {
            // If this task ended, the lease would expire, and other processes would treat the running attempts as lost. It is therefore
            // restarted after every panic.
            while !renewed.session.is_stopped() {
                let renewing = Arc::clone(&renewed);
                let ended = guard::to_its_end("the task that renews the lease", Box::pin(async move { renewing.renew_loop().await })).await;
                if let Err(text) = ended {
                    let _ = guard::guarded(
                        "the subscriber",
                        || tracing::error!(error = %text, "the lease is not renewed, and this is tried again"),
                    );
                    tokio::time::sleep((renewed.session.lease() / 8).min(LONGEST_PAUSE)).await;
                }
            }
            drop(alive);
        });
    }
}

impl<U: Fn() -> usize> Renewed<U> {
    async fn renew_loop(&self) {
        let (lease, mut connection) = (self.session.lease(), Connection::Shared);
        let (pause, mut tries, mut failures) = (lease / 4, 0, None::<Repeated>);
        while !self.session.is_stopped() {
            let error = match timeout(lease / 2, self.renew(&mut connection)).await {
                Ok(Ok(())) => {
                    metrics::lease_renewal(true);
                    (tries, failures) = (0, None);
                    self.pause(pause).await;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the database does not answer".to_owned(),
            };
            metrics::lease_renewal(false);
            let now = Instant::now();
            let is_worth_a_line = failures.as_mut().is_none_or(|failures| failures.another(now));
            let failures = failures.get_or_insert_with(|| Repeated::first(now));
            if is_worth_a_line {
                tracing::warn!(error, failures = failures.failures, "the lease was not renewed, and is tried again");
            }
            self.pause(backoff(Class::Unavailable, tries).min(pause)).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Renews the lease on the connection that the sessions of the server share, or else on one of its own. After a failure on the shared one it
    /// uses its own until that has succeeded, so that one partition that hangs takes little of the time of the others.
    async fn renew(&self, connection: &mut Connection) -> Result<(), StoreError> {
        let server = self.store.server();
        if let (Connection::Shared, Some(server)) = (&*connection, &server) {
            match timeout(self.session.lease() / 8, self.renew_shared(server)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the lease was not renewed on the connection of its server; it gets one of its own")
                }
                Err(_) => tracing::debug!("the connection of the server was not free in time; the lease is renewed on one of its own"),
            }
        }
        let own = match std::mem::replace(connection, Connection::Own(None)) {
            Connection::Own(own) => own,
            Connection::Shared => None,
        };
        let mut own = match own {
            Some(open) => open,
            None => self.store.dedicated().await?,
        };
        self.renew_on(&mut own).await?;
        *connection = if server.is_some() { Connection::Shared } else { Connection::Own(Some(own)) };
        Ok(())
    }

    /// Renews the lease on the connection that the sessions of the server share, and opens it if there is none.
    async fn renew_shared(&self, server: &Arc<str>) -> Result<(), StoreError> {
        let of_server = Arc::clone(guard::lock(&self.connections).entry(Arc::clone(server)).or_default());
        let mut place = of_server.lock().await;
        // It is put back only after a success: a connection on which a statement failed or was given up is not used again.
        let mut shared = match place.take() {
            Some(open) => open,
            None => self.store.shared(self.session.lease() / 16).await?,
        };
        self.renew_on(shared.of(&self.store).await?).await?;
        *place = Some(shared);
        Ok(())
    }

    async fn renew_on(&self, open: &mut DedicatedConnection) -> Result<(), StoreError> {
        measure(&self.store, &self.clock, open).await?;
        self.session.renew(open, &self.clock, self.clock.now(), (self.unreported)()).await
    }

    /// Sleeps, but ends early when the session is stopped.
    async fn pause(&self, pause: Duration) {
        let step = Duration::from_millis(50).min(pause);
        let mut slept = Duration::ZERO;
        while slept < pause && !self.session.is_stopped() {
            tokio::time::sleep(step).await;
            slept += step;
        }
    }
}
