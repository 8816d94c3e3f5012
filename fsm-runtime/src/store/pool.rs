//! Connections that wait to be used again. One whose last user failed never comes back here.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, Database};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::conn::{Health, within};
use super::error::{Result, StoreError};

/// A server that went away takes its idle connections with it: one that waited this long is asked first.
const ASK_AFTER: Duration = Duration::from_secs(2);

pub(super) struct Pool<D: Database> {
    place: String,
    options: Box<<D::Connection as Connection>::Options>,
    deadline: Duration,
    permits: Arc<Semaphore>,
    idle: Arc<Idle<D>>,
}

type Idle<D> = Mutex<Vec<(<D as Database>::Connection, Instant)>>;

/// A connection in use.
pub(super) struct Taken<D: Database> {
    conn: Option<D::Connection>,
    pub(super) health: Health,
    home: Option<(Arc<Idle<D>>, OwnedSemaphorePermit)>,
}

impl<D: Database> Pool<D> {
    pub(super) fn new(place: &str, options: <D::Connection as Connection>::Options, most: usize, deadline: Duration) -> Self {
        Pool {
            place: place.to_owned(),
            options: Box::new(options),
            deadline,
            permits: Arc::new(Semaphore::new(most)),
            idle: Arc::default(),
        }
    }

    /// Waits, first come first served, for one of the connections.
    pub(super) async fn take(&self) -> Result<Taken<D>> {
        let permit = match tokio::time::timeout(self.deadline, self.permits.clone().acquire_owned()).await {
            Ok(permit) => permit.map_err(|_| StoreError::Closed)?,
            Err(_) => return Err(StoreError::Deadline(self.deadline)),
        };
        while let Some((mut conn, since)) = self.pop() {
            if since.elapsed() < ASK_AFTER || matches!(tokio::time::timeout(self.deadline, conn.ping()).await, Ok(Ok(()))) {
                return Ok(self.taken(conn, Some(permit)));
            }
        }
        let conn = self.connect().await?;
        Ok(self.taken(conn, Some(permit)))
    }

    /// How its connections are made.
    pub(super) fn options(&self) -> &<D::Connection as Connection>::Options {
        &self.options
    }

    /// A connection that does not count and is closed after use.
    pub(super) async fn apart(&self) -> Result<Taken<D>> {
        Ok(self.taken(self.connect().await?, None))
    }

    /// No more connections; those in use end with their users.
    pub(super) async fn close(&self) {
        self.permits.close();
        while let Some((conn, _)) = self.pop() {
            let _ = tokio::time::timeout(self.deadline, conn.close()).await;
        }
    }

    fn taken(&self, conn: D::Connection, permit: Option<OwnedSemaphorePermit>) -> Taken<D> {
        Taken { conn: Some(conn), health: Health::default(), home: permit.map(|permit| (self.idle.clone(), permit)) }
    }

    fn pop(&self) -> Option<(D::Connection, Instant)> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop()
    }

    async fn connect(&self) -> Result<D::Connection> {
        within(self.deadline, self.options.connect()).await.map_err(|error| match error {
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

impl<D: Database> Taken<D> {
    /// The connection and what is known of it.
    pub(super) fn parts(&mut self) -> (&mut D::Connection, &mut Health) {
        (self.conn.as_mut().expect("it is taken out only by drop"), &mut self.health)
    }
}

impl<D: Database> Drop for Taken<D> {
    fn drop(&mut self) {
        let is_reusable = !self.health.is_broken && !self.health.is_open && !self.health.was_lent;
        if let (Some(conn), Some((idle, permit)), true) = (self.conn.take(), &self.home, is_reusable) {
            if permit.semaphore().is_closed() {
                return;
            }
            idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((conn, Instant::now()));
        }
    }
}
