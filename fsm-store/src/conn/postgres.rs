//! Connections to PostgreSQL as a [`Conn`].

use sqlx::postgres::PgConnection;
use sqlx::{Postgres, Transaction};

use super::Conn;
use crate::guarded::{GuardedConnection, StatementSettings};

impl<'c> From<GuardedConnection<'c, PgConnection>> for Conn<'c> {
    fn from(guarded: GuardedConnection<'c, PgConnection>) -> Self {
        Conn::Postgres(guarded)
    }
}

impl<'c> From<&'c mut PgConnection> for Conn<'c> {
    /// Uses a transaction that the caller has begun and will end.
    fn from(conn: &'c mut PgConnection) -> Self {
        Conn::Postgres(GuardedConnection { conn, statement_settings: StatementSettings::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut Transaction<'_, Postgres>> for Conn<'c> {
    /// Uses the caller's transaction. The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Postgres>) -> Self {
        Conn::from(&mut **tx)
    }
}
