//! This process's life as a worker: a random id and a lease, renewed from a thread and connection of its own, so that a
//! busy or blocked runtime does not lose it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fsm_core::ids::SessionId;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::clock::Clock;
use crate::committer::retry::{backoff, is_worth_a_line};
use crate::guard;
use crate::process;
use crate::store::conn::Conn;
use crate::store::error::{Class, StoreError};
use crate::store::open::Store;
use crate::store::sessions::{self, Lease, OtherSession};
use crate::store::tx::DedicatedConnection;

/// The longest wait before the thread that renews the lease is begun again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// This process's session.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

struct Inner {
    process: ProcessIdentity,
    lease: Duration,
    /// How long a session must have lived before it sweeps.
    grace: Duration,
    state: Mutex<SessionState>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct SessionState {
    id: SessionId,
    /// Believed by the others until then.
    until: Timestamp,
    /// Renewed in time since then.
    since: Timestamp,
}

impl SessionState {
    /// No other process knows of it yet.
    fn unknown() -> SessionState {
        SessionState { id: SessionId(Uuid::new_v4()), until: Timestamp::default(), since: Timestamp::default() }
    }

    fn is_known(&self) -> bool {
        self.until != Timestamp::default()
    }

    /// Half the lease is left at least: renewed every quarter of it, no outage was long enough to cost others theirs.
    fn is_in_time(&self, lease: Duration, now: Timestamp) -> bool {
        self.until > now && self.until.since(now) >= lease / 2
    }

    /// It has been renewed in time for `grace`.
    fn may_sweep(&self, lease: Duration, grace: Duration, now: Timestamp) -> bool {
        self.is_in_time(lease, now) && now.since(self.since) >= grace
    }

    /// Less than two thirds of a lease are left that has not run out.
    fn wants_renewal(&self, lease: Duration, now: Timestamp) -> bool {
        self.until > now && self.until.since(now) < lease / 3 * 2
    }

    /// The same life with a renewal that was asked for at `at`. One that comes late begins the grace period anew, whichever way it was made:
    /// what kept this process from renewing may have kept others.
    fn renewed(self, lease: Duration, at: Timestamp, until: Timestamp) -> SessionState {
        let since = if self.is_in_time(lease, at) { self.since } else { at };
        SessionState { until: self.until.max(until), since, ..self }
    }
}

/// A longer lease, once it is committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    id: SessionId,
    until: Timestamp,
    /// When it was asked for.
    at: Timestamp,
}

impl Renewal {
    /// The same as the store writes it.
    pub(crate) fn lease(&self, session: &Session) -> Lease {
        Lease { session: self.id, now: self.at, duration: session.0.lease, until: self.until }
    }
}

impl Session {
    /// A session that no other process knows of yet.
    pub(crate) fn new(process: ProcessIdentity, lease: Duration, grace: Duration) -> Session {
        Session(Arc::new(Inner { process, lease, grace, state: Mutex::new(SessionState::unknown()), is_stopped: AtomicBool::new(false) }))
    }

    /// Another session in the place of this one, as after a restart.
    #[cfg(feature = "testing")]
    pub(crate) fn begin_anew(&self) {
        *self.state() = SessionState::unknown();
        self.0.is_stopped.store(false, Ordering::Release);
    }

    /// The session's id.
    pub(crate) fn id(&self) -> SessionId {
        self.state().id
    }

    /// The session's id while its lease has not run out.
    pub(crate) fn certain(&self, now: Timestamp) -> Option<SessionId> {
        let state = *self.state();
        (state.until > now && !self.0.is_stopped.load(Ordering::Acquire)).then_some(state.id)
    }

    /// How long others are believed after their last sign.
    pub(crate) fn lease(&self) -> Duration {
        self.0.lease
    }

    /// Whether another session is over although this one [may not sweep](Session::may_sweep) yet.
    ///
    /// - Its process provably does not exist any more.
    /// - Its lease has ended, and since its last heartbeat others have reached the database for one and a half of its lease durations: it had
    ///   that time to renew its lease, however short each of the others lived.
    pub(crate) fn is_over(&self, other: &OtherSession, now: Timestamp) -> bool {
        let had_time = other.reachable >= other.lease.saturating_add(other.lease / 2);
        self.is_gone(&other.process) || (other.lease_until <= now && had_time)
    }

    /// Whether a process provably does not exist any more.
    pub(crate) fn is_gone(&self, process: &ProcessIdentity) -> bool {
        process.is_gone(&self.0.process, process::look)
    }

    /// Whether this session has renewed its lease in time, and did so for its grace, which is one lease. Before that nothing is swept:
    /// after an outage leases have run out, and those who are alive get the time to say so (known bug 8). That its own lease
    /// survived the outage, because it was the last to renew before it, does not say that others' did.
    pub(crate) fn may_sweep(&self, now: Timestamp) -> bool {
        self.state().may_sweep(self.0.lease, self.0.grace, now)
    }

    /// Makes the session known, or its lease longer: until one lease after `horizon`, which is now. A session that was
    /// swept in the meantime begins anew under another id.
    pub(crate) async fn renew(&self, connection: &mut DedicatedConnection, clock: &Clock, horizon: Timestamp) -> Result<(), StoreError> {
        let now = clock.now();
        let state = *self.state();
        let until = horizon + self.0.lease;
        let lease = |session| Lease { session, now, duration: self.0.lease, until };
        if state.is_known() && sessions::renew(&mut connection.conn(), lease(state.id)).await? {
            self.note_renewal(Renewal { id: state.id, until, at: now });
            return Ok(());
        }
        let id = if state.is_known() { SessionId(Uuid::new_v4()) } else { state.id };
        sessions::join(&mut connection.conn(), &self.0.process, lease(id)).await?;
        *self.state() = SessionState { id, until, since: now };
        tracing::info!(session = %id, "a worker session began");
        Ok(())
    }

    /// The renewal that is due, if less than two thirds of the lease are left of one that has not run out.
    pub(crate) fn wants_renewal(&self, now: Timestamp) -> Option<Renewal> {
        let state = *self.state();
        let is_due = state.wants_renewal(self.0.lease, now) && !self.0.is_stopped.load(Ordering::Acquire);
        is_due.then(|| Renewal { id: state.id, until: now + self.0.lease, at: now })
    }

    /// It is committed.
    pub(crate) fn note_renewal(&self, renewal: Renewal) {
        let mut state = self.state();
        if state.id == renewal.id {
            *state = state.renewed(self.0.lease, renewal.at, renewal.until);
        }
    }

    /// Renews from a thread of its own until the session is stopped.
    pub(crate) fn keep_alive(&self, store: Store, clock: Clock) -> std::io::Result<()> {
        let session = self.clone();
        std::thread::Builder::new().name("fsm-lease".into()).spawn(move || {
            // Without it the lease ends, and others take what executes here: it is begun again whatever ended it.
            while !session.0.is_stopped.load(Ordering::Acquire) {
                let renewing = guard::guarded("the thread that renews the lease", || session.renew_on_this_thread(&store, &clock));
                if let Err(text) = renewing.map_err(Into::into).flatten() {
                    let _ = guard::guarded(
                        "the subscriber",
                        || tracing::error!(error = %text, "the lease is not renewed, and this is tried again"),
                    );
                    std::thread::sleep((session.0.lease / 8).min(LONGEST_PAUSE));
                }
            }
        })?;
        Ok(())
    }

    fn renew_on_this_thread(&self, store: &Store, clock: &Clock) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.renew_loop(store, clock));
        Ok(())
    }

    async fn renew_loop(&self, store: &Store, clock: &Clock) {
        let pause = self.0.lease / 4;
        let (mut connection, mut tries) = (None, 0);
        while !self.0.is_stopped.load(Ordering::Acquire) {
            let renewed = tokio::time::timeout(self.0.lease / 2, self.renew_on(connection.take(), store, clock)).await;
            let error = match renewed {
                Ok(Ok(open)) => {
                    (connection, tries) = (Some(open), 0);
                    self.pause(pause).await;
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the database does not answer".to_owned(),
            };
            if is_worth_a_line(tries) {
                tracing::warn!(error, tries, "the lease was not renewed, and is tried again");
            }
            self.pause(backoff(Class::Unavailable, tries).min(pause)).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Renews on the connection that is open, or on a new one. Returns it.
    async fn renew_on(
        &self,
        connection: Option<DedicatedConnection>,
        store: &Store,
        clock: &Clock,
    ) -> Result<DedicatedConnection, StoreError> {
        let mut open = match connection {
            Some(open) => open,
            None => store.dedicated().await?,
        };
        self.renew_and_measure(&mut open, store, clock).await?;
        Ok(open)
    }

    async fn renew_and_measure(&self, connection: &mut DedicatedConnection, store: &Store, clock: &Clock) -> Result<(), StoreError> {
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

    fn state(&self) -> MutexGuard<'_, SessionState> {
        guard::lock(&self.0.state)
    }
}

/// Measures how far the database's clock is from this machine's.
pub(crate) async fn measure(store: &Store, clock: &Clock, connection: &mut DedicatedConnection) -> Result<(), StoreError> {
    let number = connection.number();
    measure_on(store, clock, &mut connection.conn(), number).await
}

/// The same on another connection, by its number.
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
        Session::new(process::identity(), LEASE, LEASE)
    }

    fn elsewhere(lease_until: Timestamp, reachable: Duration) -> OtherSession {
        let process = ProcessIdentity { host: "elsewhere".into(), pid: 7, place: None };
        OtherSession { id: SessionId(Uuid::new_v4()), process, lease_until, lease: LEASE, reachable }
    }

    /// Renewed in time for long, and last at 0.
    fn old_session() -> Session {
        let session = new_session();
        *session.state() = SessionState { until: at(0) + LEASE, since: at(-600), ..SessionState::unknown() };
        session
    }

    fn renew(session: &Session, now: Timestamp) {
        session.note_renewal(session.wants_renewal(now).expect("a renewal is due"));
    }

    #[test]
    fn a_session_that_a_commit_renewed_late_waits_for_its_grace_period_before_it_sweeps() {
        let session = old_session();
        // Blocked for 29 s: the lease has not run out, but those of others may have.
        renew(&session, at(29));
        assert_eq!(session.certain(at(29)), Some(session.id()));
        assert!(!session.may_sweep(at(29)), "others get one lease to renew theirs");
        renew(&session, at(43));
        renew(&session, at(57));
        assert!(!session.may_sweep(at(58)));
        assert!(session.may_sweep(at(59)), "the grace period has passed");
    }

    #[test]
    fn a_session_that_commits_renew_in_time_goes_on_sweeping() {
        let session = old_session();
        for s in (11..600).step_by(11) {
            renew(&session, at(s));
            assert!(session.may_sweep(at(s)));
        }
    }

    #[test]
    fn a_renewal_of_another_session_changes_nothing() {
        let session = old_session();
        let renewal = session.wants_renewal(at(29)).expect("a renewal is due");
        let other = new_session();
        other.note_renewal(renewal);
        assert_eq!(other.certain(at(29)), None);
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
