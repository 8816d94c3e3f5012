//! A savepoint in a SQLite transaction of the caller: the writes after it are kept completely or not at all.

use sqlx::Connection;
use sqlx::sqlite::{SqliteConnection, SqliteTransactionManager};
use sqlx_core::transaction::TransactionManager;

use crate::conn::Conn;
use crate::error::Result;
use crate::guarded::{GuardedConnection, StatementSettings, within};

/// A savepoint. If it is dropped before it is released, the writes after it are rolled back before the next statement on the connection.
///
/// `Connection::begin` makes a savepoint too, but if its future is dropped before it is ready, sqlx also rolls back the surrounding
/// transaction, and the caller's next statements would commit one by one. The lower-level functions used here do not do that.
pub struct Savepoint<'c> {
    conn: &'c mut SqliteConnection,
    statement_settings: StatementSettings,
    is_open: bool,
}

impl<'c> Savepoint<'c> {
    /// Sets a savepoint. Returns `None` outside a transaction that sqlx knows of.
    pub async fn set(guarded: GuardedConnection<'c, SqliteConnection>) -> Result<Option<Savepoint<'c>>> {
        let GuardedConnection { conn, statement_settings, .. } = guarded;
        if !conn.is_in_transaction() {
            return Ok(None);
        }
        within(statement_settings.deadline, SqliteTransactionManager::begin(conn, None)).await?;
        Ok(Some(Savepoint { conn, statement_settings, is_open: true }))
    }

    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        Conn::UserSqlite(GuardedConnection { conn: self.conn, statement_settings: self.statement_settings.clone(), health: None })
    }

    /// Releases the savepoint: the writes after it become part of the surrounding transaction.
    pub async fn release(mut self) -> Result<()> {
        within(self.statement_settings.deadline, SqliteTransactionManager::commit(self.conn)).await?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if self.is_open {
            SqliteTransactionManager::start_rollback(self.conn);
        }
    }
}
