//! The connections to a SQLite database: one writes, some read, and those of the driver run users' statements.

use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::sync::Mutex;

use super::file_versions::Turns;
use super::thread::{SqliteOptions, SqliteThread};
use super::{statements, user};
use crate::error::Result;
use crate::guarded::{Health, StatementSettings};
use crate::pool::{Connects, Ending, Pool, Taken};
use crate::settings::Settings;
use crate::shares::Purpose;
use crate::sql;
use crate::tx::{Side, Tx};

pub(crate) struct SqlitePools {
    pub(super) writer: Pool<SqliteThread>,
    pub(super) readers: Pool<SqliteThread>,
    /// Each connection runs a user's statements in place of the writer, and is closed afterwards.
    pub(super) user_sqlite: Pool<SqliteConnection>,
    /// `None` for a database in memory, where a reader has to wait for the writer.
    pub(super) turns: Option<Turns>,
    /// Keeps a database in memory alive while no other connection is open.
    pub(super) anchor: Option<Box<Mutex<Taken<SqliteThread>>>>,
    pub(super) is_read_only: bool,
}

impl SqlitePools {
    /// The settings for statements.
    pub(crate) fn statement_settings(&self, settings: &Settings) -> StatementSettings {
        StatementSettings::new(settings.deadline)
    }

    /// The name of the database in messages.
    pub(crate) fn name(&self) -> Arc<str> {
        self.writer.name()
    }

    /// True if nothing can be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// True if reads wait until the transaction that writes has ended.
    pub(crate) fn reads_wait_for_writer(&self) -> bool {
        self.turns.is_none()
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self, statement_settings: &StatementSettings, purpose: Purpose) -> Result<Tx> {
        let taken = self.writer.take(purpose).await?;
        let begun = taken.begun(statement_settings, async |conn| statements::begin(conn, sql::BEGIN_SQLITE).await).await?;
        let turn = self.turns.as_ref().map(|turns| turns.begin(None));
        Ok(Tx::new(Side::Sqlite(begun), statement_settings).counted(turn))
    }

    /// Begins a transaction that [`Turns`] does not count yet.
    pub(super) async fn begin_uncounted(&self, statement_settings: &StatementSettings, purpose: Purpose) -> Result<Tx> {
        let taken = self.writer.take(purpose).await?;
        let begun = taken.begun(statement_settings, async |conn| statements::begin(conn, sql::BEGIN_SQLITE).await).await?;
        Ok(Tx::new(Side::Sqlite(begun), statement_settings))
    }

    /// Begins a transaction that also runs a user's own statements.
    pub(crate) async fn begin_for_user(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        let place = self.writer.place(Purpose::Long).await?;
        let taken = self.user_sqlite.dedicated().await?;
        let mut begun = taken.begun(statement_settings, async |conn| user::begin(conn).await).await?;
        begun.guarded(statement_settings).hand_to_user().await?;
        Ok(Tx::new(Side::UserSqlite(begun), statement_settings).in_place_of(place))
    }

    /// A connection on which each statement is a transaction of its own. It can only read.
    pub(crate) async fn reader(&self, _: &StatementSettings, purpose: Purpose) -> Result<Side> {
        self.readers.take(purpose).await.map(Side::Sqlite)
    }

    /// SQLite has no statements that commit by themselves as fast as a transaction.
    pub(crate) async fn for_commits(&self, _: &StatementSettings) -> Result<Option<Side>> {
        Ok(None)
    }

    /// Begins a transaction that reads one snapshot.
    pub(crate) async fn snapshot(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        self.read(statement_settings, Purpose::Long).await
    }

    /// Begins a transaction that reads one snapshot, for statements that read whole tables.
    pub(crate) async fn examination(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        self.read(statement_settings, Purpose::Short).await
    }

    async fn read(&self, statement_settings: &StatementSettings, purpose: Purpose) -> Result<Tx> {
        let taken = self.readers.take(purpose).await?;
        let begun = taken.begun(statement_settings, async |conn| statements::begin(conn, sql::SNAPSHOT_SQLITE).await).await?;
        Ok(Tx::new(Side::Sqlite(begun), statement_settings))
    }

    /// A writable connection outside every pool.
    pub(crate) async fn dedicated(&self) -> Result<Side> {
        self.writer.dedicated().await.map(Side::Sqlite)
    }

    /// Closes nothing: connections to a file cost little.
    pub(crate) fn rest(&self, _: Duration) {}

    /// Closes the idle connections and hands out no more.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

impl Connects for SqliteThread {
    type Options = SqliteOptions;
    type Session = ();

    async fn connect(options: &SqliteOptions) -> sqlx::Result<(SqliteThread, ())> {
        Ok((SqliteThread::connect(options).await?, ()))
    }

    fn health((): &()) -> Health {
        Health::default()
    }

    fn is_there(&self) -> bool {
        SqliteThread::is_there(self)
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        self.run(|_| Ok(())).await
    }

    fn end<'c>(&'c mut self, health: &mut Health, ending: Ending) -> impl Future<Output = sqlx::Result<()>> + Send + use<'c> {
        let pending = std::mem::take(&mut health.pending);
        statements::end(self, if ending == Ending::Commit { pending } else { Vec::new() }, ending.text())
    }

    async fn close(self) {
        SqliteThread::close(self).await;
    }
}

impl Connects for SqliteConnection {
    type Options = SqliteConnectOptions;
    type Session = ();

    async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<(SqliteConnection, ())> {
        Ok((options.connect().await?, ()))
    }

    fn health((): &()) -> Health {
        Health::default()
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        Connection::ping(self).await
    }

    fn end<'c>(&'c mut self, _: &mut Health, ending: Ending) -> impl Future<Output = sqlx::Result<()>> + Send + use<'c> {
        user::words(self, ending.text())
    }

    async fn close(self) {
        // The connection is not used again, so an error does not matter.
        let _ = Connection::close(self).await;
    }
}
