//! Connections to SQLite as a [`Conn`].

use sqlx::sqlite::SqliteConnection;
use sqlx::{Sqlite, Transaction};

use super::Conn;
use crate::guarded::{GuardedConnection, StatementSettings};
use crate::sqlite::thread::SqliteThread;

impl<'c> From<GuardedConnection<'c, SqliteThread>> for Conn<'c> {
    fn from(guarded: GuardedConnection<'c, SqliteThread>) -> Self {
        Conn::Sqlite(guarded)
    }
}

impl<'c> From<GuardedConnection<'c, SqliteConnection>> for Conn<'c> {
    fn from(guarded: GuardedConnection<'c, SqliteConnection>) -> Self {
        Conn::UserSqlite(guarded)
    }
}

impl<'c> From<&'c mut SqliteConnection> for Conn<'c> {
    /// Uses a transaction that the caller has begun and will end.
    fn from(conn: &'c mut SqliteConnection) -> Self {
        Conn::UserSqlite(GuardedConnection { conn, statement_settings: StatementSettings::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut Transaction<'_, Sqlite>> for Conn<'c> {
    /// Uses the caller's transaction. The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Sqlite>) -> Self {
        Conn::from(&mut **tx)
    }
}
