//! Connections that wait to be used again. One whose last user failed never comes back here.

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

/// A server that went away takes its idle connections with it: one that waited this long is asked first.
const ASK_AFTER: Duration = Duration::from_secs(2);

/// How long the answer to that may take. The machine may have vanished, and then there is none.
const ANSWER: Duration = Duration::from_secs(2);

/// What a pool is of.
pub(super) trait Connects: Sized + Send {
    /// How one is made.
    type Options: Send + Sync;
    /// Makes a connection, and gives the place of its server among those of the options.
    fn connect(options: &Self::Options) -> impl Future<Output = sqlx::Result<(Self, usize)>> + Send;
    /// Whether it can be used, as far as is known without asking.
    fn is_there(&self) -> bool {
        true
    }
    /// Asks the server whether the connection is still there.
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
        // Who closes it does not want it any more, whatever it says.
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
        // Who closes it does not want it any more, whatever it says.
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

/// A connection that nobody uses.
struct Resting<C> {
    conn: C,
    since: Instant,
    session: Session,
}

/// What a connection keeps from one user to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    /// Which connection it is.
    pub(super) id: u64,
    /// It is set for commits that are one statement.
    pub(super) is_pinned: bool,
    /// How old the plans of its statements are.
    pub(super) plans: Plans,
    /// The place of its server among those of the options.
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
    /// As a connection begins.
    fn new(host: usize) -> Session {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Session { id: NEXT.fetch_add(1, Ordering::Relaxed), is_pinned: false, plans: Plans::new(), host }
    }
}

impl<C: Connects> Pool<C> {
    pub(super) fn new(place: &str, options: C::Options, most: usize, deadline: Duration) -> Self {
        Pool { place: place.to_owned(), options: Box::new(options), deadline, shares: Shares::of(most), idle: Arc::default() }
    }

    /// Waits, first come first served, for one of the connections, whichever it is.
    pub(super) async fn take(&self, purpose: Purpose) -> Result<Taken<C>> {
        self.take_one(purpose, |_| true).await
    }

    /// The same, and for one that is pinned, or not, unless all that there may be are of the other kind.
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
            // The others that are idle were made before, and each of them would keep somebody waiting as long.
            forget(&self.idle);
        }
        let (conn, host) = self.connect().await?;
        Ok(self.taken(conn, Session::new(host), Some(permit)))
    }

    /// Waits for the place of a connection, and keeps it for another one.
    pub(super) async fn place(&self, purpose: Purpose) -> Result<Place> {
        match tokio::time::timeout(self.deadline, self.shares.place(purpose)).await {
            Ok(permit) => permit.map_err(|_| StoreError::Closed),
            Err(_) if purpose == Purpose::Long => Err(StoreError::Crowded(self.deadline)),
            Err(_) => Err(StoreError::Deadline(self.deadline)),
        }
    }

    /// How its connections are made.
    pub(super) fn options(&self) -> &C::Options {
        &self.options
    }

    /// A connection that does not count and is closed after use.
    pub(super) async fn dedicated(&self) -> Result<Taken<C>> {
        let (conn, host) = self.connect().await?;
        Ok(self.taken(conn, Session::new(host), None))
    }

    /// No more connections; those in use end with their users.
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

    /// One that is wanted; another only where no more can be made. Who asks has a permit already.
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
    /// The connection and what is known of it.
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

/// Drops the connections that nobody uses.
fn forget<C: Connects>(idle: &Idle<C>) {
    let forgotten = std::mem::take(&mut *idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    drop(forgotten);
}
