//! A connection that somebody uses, and what is kept about it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Connection;

use super::error::{self, Result, StoreError};
use super::failpoint::Failpoint;
use super::servers::Servers;
use super::thread::SqliteCommand;

/// A statement that takes longer than this is waited for only as long as its server answers new connections. A socket alone does not show
/// that the machine at its other end is gone: the driver sets no TCP keepalive.
const QUIET: Duration = Duration::from_secs(1);

/// A borrowed connection, with what is kept about it.
pub struct GuardedConnection<'c, C> {
    pub(super) conn: &'c mut C,
    pub(super) rules: Rules,
    pub(super) health: Option<&'c mut Health>,
}

/// How statements are run.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// The limit on one operation.
    pub deadline: Duration,
    /// Statements are kept prepared. Without that (PgBouncer), each one outside a transaction is given its own.
    pub is_cached: bool,
    /// Where a test cuts the connection.
    pub failpoint: Failpoint,
    /// The PostgreSQL servers, one of which the connection goes to.
    pub servers: Option<Arc<Servers>>,
}

/// Whether a connection can be used again.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// A statement failed, or was abandoned half-way.
    pub is_broken: bool,
    /// A transaction was begun and not ended.
    pub is_open: bool,
    /// Somebody else's statements ran on it, and its driver counts a transaction more than there is.
    pub was_used_by_user: bool,
    /// The place of its server among those of the URL.
    pub host: usize,
    /// The server cannot be written to, or it is going away: connections made before are of no use either.
    pub is_server_lost: bool,
    /// What SQLite is told together with what comes next.
    pub pending: Vec<SqliteCommand>,
}

impl Rules {
    pub(super) const DEFAULT: Rules =
        Rules { deadline: Duration::from_secs(30), is_cached: true, failpoint: Failpoint::NEVER, servers: None };

    /// Waits for an operation on a connection of this health, at most for the limit on one operation, and not when its server is gone.
    pub(super) async fn within<T>(&self, health: &mut Health, operation: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
        let done = match &self.servers {
            Some(servers) if self.deadline > QUIET => self.while_there(servers, health.host, operation).await,
            _ => tokio::time::timeout(self.deadline, operation).await.ok(),
        };
        if let Some(Err(error)) = &done {
            health.is_server_lost |= error::is_server_lost(error);
        }
        Ok(done.ok_or(StoreError::Deadline(self.deadline))??)
    }

    /// The same for a server that can vanish. `None` when the limit has passed.
    async fn while_there<T>(
        &self,
        servers: &Servers,
        host: usize,
        operation: impl Future<Output = sqlx::Result<T>>,
    ) -> Option<sqlx::Result<T>> {
        let mut operation = pin!(operation);
        if let Ok(done) = tokio::time::timeout(QUIET, &mut operation).await {
            return Some(done);
        }
        tokio::select! {
            done = tokio::time::timeout(self.deadline - QUIET, operation) => done.ok(),
            gone = servers.gone(host) => Some(Err(gone)),
        }
    }
}

impl<'c, C> GuardedConnection<'c, C> {
    pub(super) fn new(conn: &'c mut C, rules: Rules, health: &'c mut Health) -> Self {
        GuardedConnection { conn, rules, health: Some(health) }
    }

    pub(super) fn note_user(&mut self) {
        if let Some(health) = self.health.as_deref_mut() {
            health.was_used_by_user = true;
        }
    }

    /// The connection itself, for statements that are not ours.
    pub fn into_inner(self) -> &'c mut C {
        self.conn
    }

    /// Runs one operation, the statement `text`, under the deadline. Unless it ends well, the connection counts as broken, also when this is dropped half-way.
    pub(super) async fn guarded<T>(&mut self, text: &str, operation: impl AsyncFnOnce(&mut C) -> sqlx::Result<T>) -> Result<T> {
        let mut ignored = Health::default();
        let health = self.health.as_deref_mut().unwrap_or(&mut ignored);
        if health.is_broken {
            return Err(StoreError::Aborted);
        }
        health.is_broken = true;
        self.rules.failpoint.pass(|| format!("before `{}`", about(text))).await?;
        let done = self.rules.within(health, operation(self.conn)).await?;
        health.is_broken = false;
        Ok(done)
    }
}

/// A savepoint that the driver counts as a transaction, and that nobody ends.
pub(super) fn counted<C: Connection>(conn: &mut C) -> BoxFuture<'_, sqlx::Result<()>> {
    Box::pin(async move { conn.begin_with("savepoint fsm_lent").await.map(std::mem::forget) })
}

/// What a statement does to which of our tables, in a few words: the last verb before the first table's name.
fn about(text: &str) -> String {
    let mut verb = "select";
    for word in text.split_whitespace() {
        match word {
            "select" | "insert" | "update" | "delete" => verb = word,
            table if table.starts_with("fsm_") => {
                let table = table.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(table);
                let preposition = match verb {
                    "select" | "delete" => " from",
                    "insert" => " into",
                    _ => "",
                };
                return format!("{verb}{preposition} {table}");
            }
            _ => {}
        }
    }
    text.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
}

/// Waits for a database operation, at most this long.
pub(super) async fn within<T>(deadline: Duration, operation: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    match tokio::time::timeout(deadline, operation).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Deadline(deadline)),
    }
}
