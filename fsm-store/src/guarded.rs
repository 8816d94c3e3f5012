//! A connection in use, with its statement settings and its health.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Connection;

use super::error::{self, Result, StoreError};
use super::failpoint::Failpoint;
#[cfg(feature = "postgres")]
use super::postgres::location::Host;
#[cfg(feature = "postgres")]
use super::postgres::settings::PostgresSettings;
#[cfg(feature = "sqlite")]
use super::sqlite::thread::SqliteCommand;

/// A borrowed connection, with its statement settings and its health.
pub struct GuardedConnection<'c, C> {
    pub(super) conn: &'c mut C,
    pub(super) statement_settings: StatementSettings,
    pub(super) health: Option<&'c mut Health>,
}

/// The settings for running statements.
#[derive(Debug, Clone)]
pub(super) struct StatementSettings {
    /// The limit on one operation.
    pub deadline: Duration,
    /// The failpoint of the store.
    pub failpoint: Failpoint,
    #[cfg(feature = "postgres")]
    pub postgres: PostgresSettings,
}

/// The facts that decide whether a connection can be used again.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// True if a statement failed or was abandoned.
    pub is_broken: bool,
    /// True if a transaction was begun and not ended.
    pub is_open: bool,
    /// True if a user's statements ran on it. Its driver then counts one transaction more than there is.
    pub was_used_by_user: bool,
    /// Its server.
    #[cfg(feature = "postgres")]
    pub host: Host,
    /// True if the server cannot be written to or is shutting down. Idle connections to it are useless too.
    pub is_server_lost: bool,
    /// The commands that are sent to SQLite together with the next one.
    #[cfg(feature = "sqlite")]
    pub pending: Vec<SqliteCommand>,
}

impl StatementSettings {
    pub(super) const DEFAULT: StatementSettings = StatementSettings {
        deadline: Duration::from_secs(30),
        failpoint: Failpoint::NEVER,
        #[cfg(feature = "postgres")]
        postgres: PostgresSettings::DEFAULT,
    };

    /// The settings of a store, whose failpoint a test can arm.
    pub(super) fn new(deadline: Duration) -> StatementSettings {
        StatementSettings {
            deadline,
            failpoint: Failpoint::somewhere(),
            #[cfg(feature = "postgres")]
            postgres: PostgresSettings::DEFAULT,
        }
    }

    /// The same settings for a connection that partitions share: the server is not asked for while a statement takes long, and an error does not
    /// say where the partition is.
    pub(super) fn unwatched(&self) -> StatementSettings {
        StatementSettings {
            #[cfg(feature = "postgres")]
            postgres: PostgresSettings { location: None, ..self.postgres.clone() },
            ..self.clone()
        }
    }

    /// Waits for an operation on a connection with this health, up to the deadline. Stops earlier if its server is gone.
    pub(super) async fn within<T>(&self, health: &mut Health, operation: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
        #[cfg(feature = "postgres")]
        let done = match self.postgres.watched(self.deadline) {
            Some(location) => location.while_there(health.host, self.deadline, operation).await,
            None => tokio::time::timeout(self.deadline, operation).await.ok(),
        };
        #[cfg(feature = "postgres")]
        let done = done.map(|done| done.map_err(|error| self.postgres.explained(error)));
        #[cfg(not(feature = "postgres"))]
        let done = tokio::time::timeout(self.deadline, operation).await.ok();
        if let Some(Err(error)) = &done {
            health.is_server_lost |= error::is_server_lost(error);
        }
        Ok(done.ok_or(StoreError::Deadline(self.deadline))??)
    }
}

impl<'c, C> GuardedConnection<'c, C> {
    pub(super) fn new(conn: &'c mut C, statement_settings: StatementSettings, health: &'c mut Health) -> Self {
        GuardedConnection { conn, statement_settings, health: Some(health) }
    }

    pub(super) fn note_user(&mut self) {
        if let Some(health) = self.health.as_deref_mut() {
            health.was_used_by_user = true;
        }
    }

    /// The connection itself, for a user's statements.
    pub fn into_inner(self) -> &'c mut C {
        self.conn
    }

    /// Runs one operation, the statement `text`, under the deadline. The connection counts as broken unless the operation succeeds, also if
    /// the future is dropped before it ends.
    pub(super) async fn guarded<T>(&mut self, text: &str, operation: impl AsyncFnOnce(&mut C) -> sqlx::Result<T>) -> Result<T> {
        let mut ignored = Health::default();
        let health = self.health.as_deref_mut().unwrap_or(&mut ignored);
        if health.is_broken {
            return Err(StoreError::Aborted);
        }
        health.is_broken = true;
        self.statement_settings.failpoint.pass(|| format!("before `{}`", about(text))).await?;
        let done = self.statement_settings.within(health, operation(self.conn)).await?;
        health.is_broken = false;
        Ok(done)
    }
}

/// Opens a savepoint that the driver counts as a transaction and that the driver never ends.
pub(super) fn counted<C: Connection>(conn: &mut C) -> BoxFuture<'_, sqlx::Result<()>> {
    Box::pin(async move { conn.begin_with("savepoint fsm_lent").await.map(std::mem::forget) })
}

/// A short description of a statement: the last verb before the name of the first table, and that name.
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

/// Waits for a database operation, up to `deadline`.
pub(super) async fn within<T>(deadline: Duration, operation: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    match tokio::time::timeout(deadline, operation).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Deadline(deadline)),
    }
}
