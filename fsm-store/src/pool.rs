//! A pool of connections. A connection whose last operation failed is never returned to the pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::error::{Result, StoreError};
use super::guarded::{GuardedConnection, Health, StatementSettings, within};
use super::shares::{Place, Purpose, Shares};
use super::sql;

/// A server that has gone has closed its idle connections. A connection that was idle for this long is pinged before it is used.
const ASK_AFTER: Duration = Duration::from_secs(2);

/// The time limit of that ping: if the machine has vanished, no answer ever comes.
const ANSWER: Duration = Duration::from_secs(2);

/// The time limit for the end of a connection that is not needed any more.
const FAREWELL: Duration = Duration::from_secs(5);

/// A kind of connection that a pool can hold.
pub(super) trait Connects: Sized + Send + 'static {
    /// A connection that was idle for this long is closed, if the pool has others. `None`: it is kept.
    const RESTS_FOR: Option<Duration> = None;
    /// The options for a new connection.
    type Options: Send + Sync;
    /// The properties of a connection that remain when it is returned to the pool.
    type Session: Copy + Send;
    /// Makes a connection.
    fn connect(options: &Self::Options) -> impl Future<Output = sqlx::Result<(Self, Self::Session)>> + Send;
    /// The name of the database in messages, if it can change.
    fn name(_: &Self::Options) -> Option<Arc<str>> {
        None
    }
    /// The health of a connection before its first statement.
    fn health(session: &Self::Session) -> Health;
    /// True if the connection is usable, as far as is known without a round trip.
    fn is_there(&self) -> bool {
        true
    }
    /// Asks the server whether the connection still works.
    fn ping(&mut self) -> impl Future<Output = sqlx::Result<()>> + Send;
    /// Ends the open transaction. The future does not borrow the health.
    fn end<'c>(&'c mut self, health: &mut Health, ending: Ending) -> impl Future<Output = sqlx::Result<()>> + Send + use<'c, Self>;
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Commit,
    Rollback,
}

impl Ending {
    /// The statement.
    pub(super) fn text(self) -> &'static str {
        match self {
            Ending::Commit => sql::COMMIT,
            Ending::Rollback => sql::ROLLBACK,
        }
    }
}

pub(super) struct Pool<C: Connects> {
    name: Arc<str>,
    options: Box<C::Options>,
    deadline: Duration,
    shares: Shares,
    idle: Arc<Idle<C>>,
}

type Idle<C> = Mutex<Vec<Resting<C>>>;

/// An idle connection.
struct Resting<C: Connects> {
    conn: C,
    since: Instant,
    number: u64,
    session: C::Session,
}

/// A connection in use.
pub(super) struct Taken<C: Connects> {
    conn: Option<C>,
    pub(super) health: Health,
    /// The number of the connection, from 1. A newer connection has a higher number.
    pub(super) number: u64,
    pub(super) session: C::Session,
    home: Option<(Arc<Idle<C>>, Place)>,
}

/// The number of a new connection.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<C: Connects> Pool<C> {
    /// `name` is the name of the database in messages.
    pub(super) fn new(name: &str, options: C::Options, most: usize, deadline: Duration) -> Self {
        Pool { name: name.into(), options: Box::new(options), deadline, shares: Shares::of(most), idle: Arc::default() }
    }

    /// The name of the database in messages.
    pub(super) fn name(&self) -> Arc<str> {
        C::name(&self.options).unwrap_or_else(|| Arc::clone(&self.name))
    }

    /// Waits, first come first served, for any connection.
    pub(super) async fn take(&self, purpose: Purpose) -> Result<Taken<C>> {
        self.take_rather(purpose, |_| true).await
    }

    /// Like `take`, but prefers a connection with a wanted session. Takes another one only if no more connections may be made.
    pub(super) async fn take_rather(&self, purpose: Purpose, is_wanted: impl Fn(&C::Session) -> bool) -> Result<Taken<C>> {
        let permit = self.place(purpose).await?;
        while let Some(mut resting) = self.pop(&is_wanted) {
            if !resting.conn.is_there() {
                continue;
            }
            if resting.since.elapsed() < ASK_AFTER
                || matches!(tokio::time::timeout(ANSWER.min(self.deadline), resting.conn.ping()).await, Ok(Ok(())))
            {
                return Ok(Taken::of(resting, Some((self.idle.clone(), permit))));
            }
            // The other idle connections are older, and a ping of each could take as long.
            forget(&self.idle);
        }
        let resting = self.connect().await?;
        Ok(Taken::of(resting, Some((self.idle.clone(), permit))))
    }

    /// Waits for a connection's place in the pool. The caller uses it for a connection of another pool.
    pub(super) async fn place(&self, purpose: Purpose) -> Result<Place> {
        match tokio::time::timeout(self.deadline, self.shares.place(purpose)).await {
            Ok(permit) => permit.map_err(|_| StoreError::Closed),
            Err(_) if purpose == Purpose::Long => Err(StoreError::TooManyTransactions(self.deadline)),
            Err(_) => Err(StoreError::Deadline(self.deadline)),
        }
    }

    /// A connection that does not count as one of the pool, and that is closed after use.
    pub(super) async fn dedicated(&self) -> Result<Taken<C>> {
        Ok(Taken::of(self.connect().await?, None))
    }

    /// Closes the idle connections and refuses new requests. Connections in use are closed when they are returned.
    pub(super) async fn close(&self) {
        self.shares.close();
        while let Some(resting) = self.pop(&|_: &_| true) {
            let _ = tokio::time::timeout(self.deadline, resting.conn.close()).await;
        }
    }

    /// Closes the connections that were idle for this long, also the last one.
    #[cfg(feature = "postgres")]
    pub(super) fn rest(&self, limit: Duration) {
        let unneeded: Vec<_> = {
            let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let (unneeded, kept) = std::mem::take(&mut *idle).into_iter().partition(|resting| resting.since.elapsed() >= limit);
            *idle = kept;
            unneeded
        };
        unneeded.into_iter().for_each(say_farewell);
    }

    /// Takes an idle connection that is wanted. Takes another one only if no more can be made. The caller already holds a permit.
    fn pop(&self, is_wanted: &impl Fn(&C::Session) -> bool) -> Option<Resting<C>> {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match idle.iter().rposition(|resting| is_wanted(&resting.session)) {
            Some(place) => Some(idle.remove(place)),
            None if idle.len() > self.shares.free() => idle.pop(),
            None => None,
        }
    }

    async fn connect(&self) -> Result<Resting<C>> {
        let connected = within(self.deadline, C::connect(&self.options)).await;
        let place = || self.name().to_string();
        let (conn, session) = connected.map_err(|error| match error {
            StoreError::Database(source) => StoreError::Unreachable { place: place(), source },
            StoreError::Deadline(limit) => StoreError::Unreachable {
                place: place(),
                source: sqlx::Error::Io(std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("no answer within {} s", limit.as_secs_f64()),
                )),
            },
            other => other,
        })?;
        Ok(Resting { conn, since: Instant::now(), number: next_number(), session })
    }
}

impl<C: Connects> Taken<C> {
    fn of(resting: Resting<C>, home: Option<(Arc<Idle<C>>, Place)>) -> Taken<C> {
        let Resting { conn, number, session, .. } = resting;
        Taken { conn: Some(conn), health: C::health(&session), number, session, home }
    }

    /// Runs `how` to begin a transaction. If the future is dropped before it ends, the connection counts as one with an open transaction.
    pub(super) async fn begun(
        mut self,
        statement_settings: &StatementSettings,
        how: impl AsyncFnOnce(&mut C) -> sqlx::Result<()>,
    ) -> Result<Taken<C>> {
        let (conn, health) = self.parts();
        health.is_open = true;
        statement_settings.failpoint.pass(|| "before a transaction began".to_owned()).await?;
        statement_settings.within(health, how(conn)).await?;
        Ok(self)
    }

    /// The connection with these settings.
    pub(super) fn guarded(&mut self, statement_settings: &StatementSettings) -> GuardedConnection<'_, C> {
        let (conn, health) = self.parts();
        GuardedConnection::new(conn, statement_settings.clone(), health)
    }

    /// The connection and its health.
    pub(super) fn parts(&mut self) -> (&mut C, &mut Health) {
        (self.conn.as_mut().expect("it is taken out only by drop"), &mut self.health)
    }
}

impl<C: Connects> Drop for Taken<C> {
    fn drop(&mut self) {
        let is_reusable = !self.health.is_broken && !self.health.is_open && !self.health.was_used_by_user;
        if let (true, Some((idle, _))) = (self.health.is_server_lost, &self.home) {
            forget(idle);
        }
        if let (Some(conn), Some((idle, permit)), true) = (self.conn.take(), &self.home, is_reusable) {
            if permit.is_closed() {
                return;
            }
            let resting = Resting { conn, since: Instant::now(), number: self.number, session: self.session };
            let unneeded = {
                let mut idle = idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                let unneeded = unneeded(&mut idle);
                idle.push(resting);
                unneeded
            };
            unneeded.into_iter().for_each(say_farewell);
        }
    }
}

/// Takes out the connection that has been idle for the longest time, if that was too long. The most recently used one is used first, so that a
/// connection rests only while fewer are needed.
fn unneeded<C: Connects>(idle: &mut Vec<Resting<C>>) -> Option<Resting<C>> {
    let limit = C::RESTS_FOR?;
    idle.first().is_some_and(|oldest| oldest.since.elapsed() >= limit).then(|| idle.remove(0))
}

/// Closes a connection in the background.
fn say_farewell<C: Connects>(unneeded: Resting<C>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        // Its result does not matter: the connection is gone at the end of the wait.
        runtime.spawn(tokio::time::timeout(FAREWELL, unneeded.conn.close()));
    }
}

/// Drops all idle connections.
fn forget<C: Connects>(idle: &Idle<C>) {
    let forgotten = std::mem::take(&mut *idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    drop(forgotten);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that counts how many were opened and closed.
    struct Counted(Arc<[AtomicU64; 2]>);

    impl Connects for Counted {
        const RESTS_FOR: Option<Duration> = Some(Duration::ZERO);
        type Options = Arc<[AtomicU64; 2]>;
        type Session = ();

        async fn connect(counts: &Self::Options) -> sqlx::Result<(Counted, ())> {
            counts[0].fetch_add(1, Ordering::Relaxed);
            Ok((Counted(Arc::clone(counts)), ()))
        }

        fn health((): &()) -> Health {
            Health::default()
        }

        async fn ping(&mut self) -> sqlx::Result<()> {
            Ok(())
        }

        fn end<'c>(&'c mut self, _: &mut Health, _: Ending) -> impl Future<Output = sqlx::Result<()>> + Send + use<'c> {
            std::future::ready(Ok(()))
        }

        async fn close(self) {
            self.0[1].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn connections_that_are_not_needed_any_more_are_closed_and_one_in_use_stays() {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let pool = Pool::<Counted>::new("counted", Arc::clone(&counts), 5, Duration::from_secs(5));
        let now = async || {
            // The connections are closed by tasks of this thread.
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            [0, 1].map(|which| counts[which].load(Ordering::Relaxed))
        };
        let three = [pool.take(Purpose::Short).await, pool.take(Purpose::Short).await, pool.take(Purpose::Short).await];
        assert_eq!(now().await, [3, 0]);
        drop(three);
        assert_eq!(now().await, [3, 2], "each that comes back closes the one that rested");
        for _ in 0..3 {
            drop(pool.take(Purpose::Short).await);
        }
        assert_eq!(now().await, [3, 2], "the last one is used again and again");
    }
}
