//! The session of this process as a worker: a random id and a lease. `heartbeats` renews it.

#[cfg(feature = "sqlite")]
mod beside;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fsm_core::ids::SessionId;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::open::Store;
use fsm_store::sessions::{self, Lease, OtherSession};
use fsm_store::tx::DedicatedConnection;
use uuid::Uuid;

use crate::clock::Clock;
use crate::guard;
use crate::process;

/// This process's session.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    process: ProcessIdentity,
    /// The number of the code that this process serves.
    code: i64,
    lease: Duration,
    /// The time for which a session must have renewed in time before it sweeps.
    grace: Duration,
    state: Mutex<SessionState>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct SessionState {
    id: SessionId,
    /// The end of the lease.
    until: Timestamp,
    /// The start of the time in which all renewals were in time.
    since: Timestamp,
    /// The number of unreported attempts that the session's row shows.
    shown_unreported: usize,
}

impl SessionState {
    /// A session that is not in the database yet.
    fn unknown() -> SessionState {
        SessionState { id: SessionId(Uuid::new_v4()), until: Timestamp::default(), since: Timestamp::default(), shown_unreported: 0 }
    }

    fn is_known(&self) -> bool {
        self.until != Timestamp::default()
    }

    /// Returns true if at least half of the lease is left. Renewals take place every quarter of a lease, so there was no outage long enough
    /// for other leases to expire.
    fn is_in_time(&self, lease: Duration, now: Timestamp) -> bool {
        self.until > now && self.until.since(now) >= lease / 2
    }

    /// Returns true if the lease has been renewed in time for the time `grace`.
    fn may_sweep(&self, lease: Duration, grace: Duration, now: Timestamp) -> bool {
        self.is_in_time(lease, now) && now.since(self.since) >= grace
    }

    /// The state after a renewal that was requested at `at`. A late renewal restarts the grace period, because the same outage may have
    /// delayed the renewals of other processes.
    fn renewed(self, lease: Duration, at: Timestamp, until: Timestamp) -> SessionState {
        let since = if self.is_in_time(lease, at) { self.since } else { at };
        SessionState { until: self.until.max(until), since, ..self }
    }
}

/// A renewal of the lease that is effective once it is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    id: SessionId,
    until: Timestamp,
    /// The time of the request.
    at: Timestamp,
}

impl Session {
    /// A session that is not in the database yet.
    pub(crate) fn new(process: ProcessIdentity, code: i64, lease: Duration, grace: Duration) -> Session {
        Session(Arc::new(Inner {
            process,
            code,
            lease,
            grace,
            state: Mutex::new(SessionState::unknown()),
            is_stopped: AtomicBool::new(false),
        }))
    }

    /// Replaces this session by a new one, as a restart does.
    #[cfg(feature = "testing")]
    pub(crate) fn begin_anew(&self) {
        *self.state() = SessionState::unknown();
        self.0.is_stopped.store(false, Ordering::Release);
    }

    /// The session's id.
    pub(crate) fn id(&self) -> SessionId {
        self.state().id
    }

    /// Returns true if the session was registered. A partition that was not reached since the start has none.
    pub(crate) fn has_begun(&self) -> bool {
        self.state().is_known()
    }

    /// The end of the lease, unless it is renewed.
    pub(crate) fn until(&self) -> Timestamp {
        self.state().until
    }

    /// The session's id, or `None` if its lease has expired.
    pub(crate) fn certain(&self, now: Timestamp) -> Option<SessionId> {
        let state = *self.state();
        (state.until > now && !self.0.is_stopped.load(Ordering::Acquire)).then_some(state.id)
    }

    /// The lease duration.
    pub(crate) fn lease(&self) -> Duration {
        self.0.lease
    }

    /// True if another session is over, also if this one [may not sweep](Session::may_sweep) yet. One of these must hold:
    ///
    /// - Its process provably does not exist any more.
    /// - Its lease has ended, and since its last heartbeat others have reached the database for one and a half of its lease durations: it had
    ///   that time to renew its lease, however short each of the others lived.
    pub(crate) fn is_over(&self, other: &OtherSession, now: Timestamp) -> bool {
        let had_time = other.reachable >= other.lease.saturating_add(other.lease / 2);
        self.is_gone(&other.process) || (other.lease_until <= now && had_time)
    }

    /// True if another session serves the same code as this one, and lives as far as is known.
    pub(crate) fn is_peer(&self, other: &OtherSession, now: Timestamp) -> bool {
        other.code == self.0.code && other.lease_until > now && !self.is_gone(&other.process)
    }

    /// True if a process provably does not exist any more.
    pub(crate) fn is_gone(&self, process: &ProcessIdentity) -> bool {
        process.is_gone(&self.0.process, process::look_up)
    }

    /// Returns true if this session has renewed its lease in time for one lease duration. Before that, nothing is swept: after an outage,
    /// leases of live processes have expired too, and these processes get the time to renew them (known bug 8). Its own lease may have
    /// survived the outage only because it was the last one to be renewed before.
    pub(crate) fn may_sweep(&self, now: Timestamp) -> bool {
        self.state().may_sweep(self.0.lease, self.0.grace, now)
    }

    /// Registers the session, or extends its lease to one lease duration after `horizon`, which is now except in tests. If the session was
    /// swept meanwhile, a new one with another id is registered. `unreported` is the number of attempts that ended here and whose ends the
    /// database does not accept; other processes can read it.
    pub(crate) async fn renew(
        &self,
        connection: &mut DedicatedConnection,
        clock: &Clock,
        horizon: Timestamp,
        unreported: usize,
    ) -> Result<(), StoreError> {
        self.renew_lease(connection, clock, horizon).await?;
        let SessionState { id, shown_unreported, .. } = *self.state();
        if shown_unreported != unreported {
            sessions::tell_unreported(&mut connection.conn(), id, unreported).await?;
            self.state().shown_unreported = unreported;
        }
        Ok(())
    }

    async fn renew_lease(&self, connection: &mut DedicatedConnection, clock: &Clock, horizon: Timestamp) -> Result<(), StoreError> {
        let now = clock.now();
        let state = *self.state();
        let until = horizon + self.0.lease;
        let lease = |session| Lease { session, now, duration: self.0.lease, until };
        if state.is_known() && sessions::renew(&mut connection.conn(), lease(state.id)).await? {
            self.note_renewal(Renewal { id: state.id, until, at: now });
            return Ok(());
        }
        let id = if state.is_known() { SessionId(Uuid::new_v4()) } else { state.id };
        sessions::join(&mut connection.conn(), &self.0.process, self.0.code, lease(id)).await?;
        *self.state() = SessionState { id, until, since: now, shown_unreported: 0 };
        tracing::info!(session = %id, "a worker session began");
        Ok(())
    }

    /// Records a committed renewal.
    pub(crate) fn note_renewal(&self, renewal: Renewal) {
        let mut state = self.state();
        if state.id == renewal.id {
            *state = state.renewed(self.0.lease, renewal.at, renewal.until);
        }
    }

    /// Stops the heartbeats.
    pub(crate) fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
    }

    /// Returns true if the heartbeats are stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        guard::lock(&self.0.state)
    }
}

/// Measures the difference between the database's clock and this machine's.
pub(crate) async fn measure(store: &Store, clock: &Clock, connection: &mut DedicatedConnection) -> Result<(), StoreError> {
    let number = connection.number();
    measure_on(store, clock, &mut connection.conn(), number).await
}

/// Like `measure`, on another connection with the given number.
pub(crate) async fn measure_on(store: &Store, clock: &Clock, conn: &mut Conn<'_>, number: u64) -> Result<(), StoreError> {
    if matches!(clock, Clock::Database(_)) && store.is_postgres() {
        let before = Instant::now();
        if let Some(server) = sessions::server_clock(conn).await? {
            clock.measured(server.now, before, Instant::now(), number);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(s: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000 * (1000 + s))
    }

    fn new_session() -> Session {
        Session::new(process::identity(), 0, LEASE, LEASE)
    }

    fn elsewhere(lease_until: Timestamp, reachable: Duration) -> OtherSession {
        let process = ProcessIdentity { host: "elsewhere".into(), pid: 7, place: None };
        OtherSession { id: SessionId(Uuid::new_v4()), process, lease_until, lease: LEASE, reachable, code: 0 }
    }

    #[test]
    fn a_session_whose_lease_ended_while_others_reached_the_database_is_over() {
        let me = new_session();
        let enough = LEASE + LEASE / 2;
        assert!(me.is_over(&elsewhere(at(0), enough), at(0)));
        assert!(!me.is_over(&elsewhere(at(1), enough), at(0)), "its lease has not ended");
        // After an outage of any length it gets the time to renew its lease.
        assert!(!me.is_over(&elsewhere(at(-9000), enough - Duration::from_micros(1)), at(0)));
    }
}
