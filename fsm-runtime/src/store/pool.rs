//! A pool of connections. A connection whose last operation failed is never returned to the pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::error::{Result, StoreError};
use super::guarded::{Health, within};
use super::plans::Plans;
use super::servers::Servers;
use super::shares::{Place, Purpose, Shares};
use super::thread::{SqliteOptions, SqliteThread};

/// A server that has gone has closed its idle connections. A connection that was idle for this long is pinged before it is used.
const ASK_AFTER: Duration = Duration::from_secs(2);

/// The time limit of that ping: if the machine has vanished, no answer ever comes.
const ANSWER: Duration = Duration::from_secs(2);

/// A kind of connection that a pool can hold.
pub(super) trait Connects: Sized + Send {
    /// The options for a new connection.
    type Options: Send + Sync;
    /// Makes a connection. Also returns the index of its server in the options.
    fn connect(options: &Self::Options) -> impl Future<Output = sqlx::Result<(Self, usize)>> + Send;
    /// True if the connection is usable, as far as is known without a round trip.
    fn is_there(&self) -> bool {
        true
    }
    /// Asks the server whether the connection still works.
    fn ping(&mut self) -> impl Future<Output = sqlx::Result<()>> + Send;
    fn close(self) -> impl Future<Output = ()> + Send;
}

impl Connects for PgConnection {
    type Options = Servers;

    async fn connect(options: &Servers) -> sqlx::Result<(PgConnection, usize)> {
        options.connect().await
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        Connection::ping(self).await
    }

    async fn close(self) {
        // The connection is not used again, so an error does not matter.
        let _ = Connection::close(self).await;
    }
}

impl Connects for SqliteConnection {
    type Options = SqliteConnectOptions;

    async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<(SqliteConnection, usize)> {
        Ok((options.connect().await?, 0))
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        Connection::ping(self).await
    }

    async fn close(self) {
        // The connection is not used again, so an error does not matter.
        let _ = Connection::close(self).await;
    }
}

impl Connects for SqliteThread {
    type Options = SqliteOptions;

    async fn connect(options: &SqliteOptions) -> sqlx::Result<(SqliteThread, usize)> {
        Ok((SqliteThread::connect(options).await?, 0))
    }

    fn is_there(&self) -> bool {
        SqliteThread::is_there(self)
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        self.run(|_| Ok(())).await
    }

    async fn close(self) {
        SqliteThread::close(self).await;
    }
}

pub(super) struct Pool<C: Connects> {
    place: String,
    options: Box<C::Options>,
    deadline: Duration,
    shares: Shares,
    idle: Arc<Idle<C>>,
}

type Idle<C> = Mutex<Vec<Resting<C>>>;

/// An idle connection.
struct Resting<C> {
    conn: C,
    since: Instant,
    session: Session,
}

/// The properties of a connection that remain when it is returned to the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    /// The id of the connection.
    pub(super) id: u64,
    /// True if the session has the planner settings for single-statement commits.
    pub(super) is_pinned: bool,
    /// The age of the plans of its prepared statements.
    pub(super) plans: Plans,
    /// The index of its server in the options.
    host: usize,
}

/// A connection in use.
pub(super) struct Taken<C: Connects> {
    conn: Option<C>,
    pub(super) health: Health,
    pub(super) session: Session,
    home: Option<(Arc<Idle<C>>, Place)>,
}

impl Session {
    /// The session of a new connection.
    fn new(host: usize) -> Session {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Session { id: NEXT.fetch_add(1, Ordering::Relaxed), is_pinned: false, plans: Plans::new(), host }
    }
}

impl<C: Connects> Pool<C> {
    pub(super) fn new(place: &str, options: C::Options, most: usize, deadline: Duration) -> Self {
        Pool { place: place.to_owned(), options: Box::new(options), deadline, shares: Shares::of(most), idle: Arc::default() }
    }

    /// Waits, first come first served, for any connection.
    pub(super) async fn take(&self, purpose: Purpose) -> Result<Taken<C>> {
        self.take_one(purpose, |_| true).await
    }

    /// Like `take`, but prefers a connection that is pinned, or that is not. Takes one of the other kind only if no more connections may be
    /// made.
    pub(super) async fn take_rather(&self, purpose: Purpose, is_pinned: bool) -> Result<Taken<C>> {
        self.take_one(purpose, |resting| resting.session.is_pinned == is_pinned).await
    }

    async fn take_one(&self, purpose: Purpose, is_wanted: impl Fn(&Resting<C>) -> bool) -> Result<Taken<C>> {
        let permit = self.place(purpose).await?;
        while let Some(Resting { mut conn, since, session }) = self.pop(&is_wanted) {
            if !conn.is_there() {
                continue;
            }
            if since.elapsed() < ASK_AFTER || matches!(tokio::time::timeout(ANSWER.min(self.deadline), conn.ping()).await, Ok(Ok(()))) {
                return Ok(self.taken(conn, session, Some(permit)));
            }
            // The other idle connections are older, and a ping of each could take as long.
            forget(&self.idle);
        }
        let (conn, host) = self.connect().await?;
        Ok(self.taken(conn, Session::new(host), Some(permit)))
    }

    /// Waits for a connection's place in the pool. The caller uses it for a connection of another pool.
    pub(super) async fn place(&self, purpose: Purpose) -> Result<Place> {
        match tokio::time::timeout(self.deadline, self.shares.place(purpose)).await {
            Ok(permit) => permit.map_err(|_| StoreError::Closed),
            Err(_) if purpose == Purpose::Long => Err(StoreError::Crowded(self.deadline)),
            Err(_) => Err(StoreError::Deadline(self.deadline)),
        }
    }

    /// The options for new connections.
    pub(super) fn options(&self) -> &C::Options {
        &self.options
    }

    /// A connection that does not count as one of the pool, and that is closed after use.
    pub(super) async fn dedicated(&self) -> Result<Taken<C>> {
        let (conn, host) = self.connect().await?;
        Ok(self.taken(conn, Session::new(host), None))
    }

    /// Closes the idle connections and refuses new requests. Connections in use are closed when they are returned.
    pub(super) async fn close(&self) {
        self.shares.close();
        while let Some(resting) = self.pop(&|_: &_| true) {
            let _ = tokio::time::timeout(self.deadline, resting.conn.close()).await;
        }
    }

    fn taken(&self, conn: C, session: Session, permit: Option<Place>) -> Taken<C> {
        let health = Health { host: session.host, ..Health::default() };
        Taken { conn: Some(conn), health, session, home: permit.map(|permit| (self.idle.clone(), permit)) }
    }

    /// Takes an idle connection that is wanted. Takes another one only if no more can be made. The caller already holds a permit.
    fn pop(&self, is_wanted: &impl Fn(&Resting<C>) -> bool) -> Option<Resting<C>> {
        let mut idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match idle.iter().rposition(is_wanted) {
            Some(place) => Some(idle.remove(place)),
            None if idle.len() > self.shares.free() => idle.pop(),
            None => None,
        }
    }

    async fn connect(&self) -> Result<(C, usize)> {
        within(self.deadline, C::connect(&self.options)).await.map_err(|error| match error {
            StoreError::Database(source) => StoreError::Unreachable { place: self.place.clone(), source },
            StoreError::Deadline(limit) => StoreError::Unreachable {
                place: self.place.clone(),
                source: sqlx::Error::Io(std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("no answer within {} s", limit.as_secs_f64()),
                )),
            },
            other => other,
        })
    }
}

impl<C: Connects> Taken<C> {
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
            idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Resting {
                conn,
                since: Instant::now(),
                session: self.session,
            });
        }
    }
}

/// Drops all idle connections.
fn forget<C: Connects>(idle: &Idle<C>) {
    let forgotten = std::mem::take(&mut *idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    drop(forgotten);
}
