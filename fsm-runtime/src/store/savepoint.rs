//! A savepoint in a transaction of the caller's in SQLite: what is written after it is kept as a whole, or not at all.

use sqlx::Connection;
use sqlx::sqlite::{SqliteConnection, SqliteTransactionManager};
use sqlx_core::transaction::TransactionManager;

use super::conn::Conn;
use super::error::Result;
use super::guarded::{GuardedConnection, Rules, within};

/// A savepoint. Dropped before it is released, what was written after it is undone before the next statement on the connection.
///
/// `Connection::begin` makes one too. If its future is dropped before it is ready, sqlx rolls back the transaction around it as well, and the
/// caller's next statements would commit one by one. The functions under it do not.
pub struct Savepoint<'c> {
    conn: &'c mut SqliteConnection,
    rules: Rules,
    is_open: bool,
}

impl<'c> Savepoint<'c> {
    /// Sets one. `None` outside a transaction that sqlx knows of.
    pub(crate) async fn set(guarded: GuardedConnection<'c, SqliteConnection>) -> Result<Option<Savepoint<'c>>> {
        let GuardedConnection { conn, rules, .. } = guarded;
        if !conn.is_in_transaction() {
            return Ok(None);
        }
        within(rules.deadline, SqliteTransactionManager::begin(conn, None)).await?;
        Ok(Some(Savepoint { conn, rules, is_open: true }))
    }

    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        Conn::UserSqlite(GuardedConnection { conn: self.conn, rules: self.rules.clone(), health: None })
    }

    /// Keeps what was written, as part of the transaction around it.
    pub async fn release(mut self) -> Result<()> {
        within(self.rules.deadline, SqliteTransactionManager::commit(self.conn)).await?;
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
