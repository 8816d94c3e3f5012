//! This process's life as a worker: a random id and a lease, renewed from a thread and connection of its own, so that a
//! busy or blocked runtime does not lose it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::clock::{self, Clock};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::open::Store;
use crate::store::sessions;
use crate::store::tx::Apart;

/// This process's session.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    lease: Duration,
    /// How long a session must have lived before it sweeps.
    grace: Duration,
    life: Mutex<Life>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Life {
    id: SessionId,
    /// Believed by the others until then.
    until: Timestamp,
    /// Renewed in time since then.
    since: Timestamp,
}

impl Life {
    /// No other process knows of it yet.
    fn unknown() -> Life {
        Life { id: SessionId(Uuid::new_v4()), until: Timestamp::default(), since: Timestamp::default() }
    }

    fn is_known(&self) -> bool {
        self.until != Timestamp::default()
    }
}

/// A longer lease, once it is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    pub(crate) id: SessionId,
    pub(crate) until: Timestamp,
}

impl Session {
    /// A session that no other process knows of yet.
    pub(crate) fn new(lease: Duration, grace: Duration) -> Session {
        Session(Arc::new(Inner { lease, grace, life: Mutex::new(Life::unknown()), is_stopped: AtomicBool::new(false) }))
    }

    /// Another session in the place of this one, as after a restart.
    #[cfg(feature = "testing")]
    pub(crate) fn begin_anew(&self) {
        *self.life() = Life::unknown();
        self.0.is_stopped.store(false, Ordering::Release);
    }

    /// The session's id.
    pub(crate) fn id(&self) -> SessionId {
        self.life().id
    }

    /// The session's id while its lease has not run out.
    pub(crate) fn certain(&self, now: Timestamp) -> Option<SessionId> {
        let life = *self.life();
        (life.until > now && !self.0.is_stopped.load(Ordering::Acquire)).then_some(life.id)
    }

    /// How long others are believed after their last sign.
    pub(crate) fn lease(&self) -> Duration {
        self.0.lease
    }

    /// Whether this session has renewed its lease in time, and did so for its grace, which is one lease. Before that nothing is swept:
    /// after an outage leases have run out, and those who are alive get the time to say so (known bug 8). That its own lease
    /// survived the outage, because it was the last to renew before it, does not say that others' did.
    pub(crate) fn may_sweep(&self, now: Timestamp) -> bool {
        let life = *self.life();
        self.is_in_time(life, now) && now.since(life.since) >= self.0.grace
    }

    /// Half the lease is left at least: renewed every quarter of it, no outage was long enough to cost others theirs.
    fn is_in_time(&self, life: Life, now: Timestamp) -> bool {
        life.until > now && life.until.since(now) >= self.0.lease / 2
    }

    /// Makes the session known, or its lease longer: until one lease after `horizon`, which is now. A session that was
    /// swept in the meantime begins anew under another id.
    pub(crate) async fn renew(&self, connection: &mut Apart, clock: &Clock, horizon: Timestamp) -> Result<(), StoreError> {
        let now = clock.now();
        let life = *self.life();
        let until = horizon + self.0.lease;
        if life.is_known() && sessions::renew(&mut connection.conn(), life.id, until).await? {
            let since = if self.is_in_time(life, now) { life.since } else { now };
            *self.life() = Life { until, since, ..life };
            return Ok(());
        }
        let id = if life.is_known() { SessionId(Uuid::new_v4()) } else { life.id };
        let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/etc/hostname")).unwrap_or_default();
        sessions::join(&mut connection.conn(), id, host.trim(), std::process::id(), now, until).await?;
        *self.life() = Life { id, until, since: now };
        tracing::info!(session = %id, "a worker session began");
        Ok(())
    }

    /// The renewal that is due, if less than two thirds of the lease are left of one that has not run out.
    pub(crate) fn wants_renewal(&self, now: Timestamp) -> Option<Renewal> {
        let life = *self.life();
        let is_due = life.until > now && life.until.since(now) < self.0.lease * 2 / 3 && !self.0.is_stopped.load(Ordering::Acquire);
        is_due.then(|| Renewal { id: life.id, until: now + self.0.lease })
    }

    /// It is committed.
    pub(crate) fn renewed(&self, renewal: Renewal) {
        let mut life = self.life();
        if life.id == renewal.id {
            life.until = life.until.max(renewal.until);
        }
    }

    /// Renews from a thread of its own until the session is stopped.
    pub(crate) fn keep_alive(&self, store: Store, clock: Clock) -> std::io::Result<()> {
        let session = self.clone();
        std::thread::Builder::new().name("fsm-lease".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime.block_on(session.renew_for_ever(&store, &clock)),
                Err(error) => tracing::error!(%error, "the thread that renews the lease could not start"),
            }
        })?;
        Ok(())
    }

    async fn renew_for_ever(&self, store: &Store, clock: &Clock) {
        let pause = self.0.lease / 4;
        let mut connection: Option<Apart> = None;
        while !self.0.is_stopped.load(Ordering::Acquire) {
            let renewed = match connection.take() {
                Some(open) => Ok(open),
                None => store.apart().await,
            };
            match renewed {
                Ok(mut open) => match tokio::time::timeout(self.0.lease / 2, self.renew_and_measure(&mut open, store, clock)).await {
                    Ok(Ok(())) => connection = Some(open),
                    Ok(Err(error)) => tracing::warn!(%error, "the lease was not renewed"),
                    Err(_) => tracing::warn!("the lease was not renewed: the database does not answer"),
                },
                Err(error) => tracing::warn!(%error, "the lease was not renewed"),
            }
            self.pause(pause).await;
        }
    }

    async fn renew_and_measure(&self, connection: &mut Apart, store: &Store, clock: &Clock) -> Result<(), StoreError> {
        measure(store, clock, connection).await?;
        self.renew(connection, clock, clock.now()).await
    }

    /// Sleeps, but not through a stop.
    async fn pause(&self, pause: Duration) {
        let step = Duration::from_millis(50).min(pause);
        let mut slept = Duration::ZERO;
        while slept < pause && !self.0.is_stopped.load(Ordering::Acquire) {
            tokio::time::sleep(step).await;
            slept += step;
        }
    }

    /// No more signs of life.
    pub(crate) fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.0.life.lock().expect("no code panics while it holds the session")
    }
}

/// Measures how far the database's clock is from this machine's.
pub(crate) async fn measure(store: &Store, clock: &Clock, connection: &mut Apart) -> Result<(), StoreError> {
    measure_on(store, clock, &mut connection.conn()).await
}

/// The same on whatever connection.
pub(crate) async fn measure_on(store: &Store, clock: &Clock, conn: &mut Conn<'_>) -> Result<(), StoreError> {
    if matches!(clock, Clock::Database(_)) && store.is_postgres() {
        let before = clock::system();
        if let Some(server) = sessions::server_clock(conn).await? {
            clock.measured(server.now, before, clock::system());
        }
    }
    Ok(())
}
