//! The connections to a PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::location::{Host, Location};
use super::plans::Plans;
use super::settings::PostgresSettings;
use super::shared_listener::ListeningConnections;
use super::statements::words;
use crate::error::Result;
use crate::guarded::{Health, StatementSettings};
use crate::pool::{Connects, Ending, Pool, Taken};
use crate::settings::Settings;
use crate::shares::Purpose;
use crate::sql;
use crate::tx::{Side, Tx};

pub(crate) struct PostgresPool {
    pub(super) pool: Pool<PgConnection>,
    pub(crate) location: Arc<Location>,
    /// The channel of the notifications. Each schema has its own.
    pub(crate) channel: String,
    /// True if it is known that each connection has a server session of its own, which no pooler gives to other clients.
    pub(crate) is_direct: bool,
    pub(super) is_read_only: bool,
    /// The listening connections of this process.
    pub(super) listening: ListeningConnections,
}

/// A connection that nothing has used for this long is closed. It costs the server a process and some megabytes.
const RESTS_FOR: Duration = Duration::from_secs(300);

/// The properties of a connection that remain when it is returned to the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// True if the session has the planner settings for single-statement commits.
    is_pinned: bool,
    /// The age of the plans of its prepared statements.
    plans: Plans,
    /// Its server.
    host: Host,
}

impl PostgresPool {
    /// The settings for statements.
    pub(crate) fn statement_settings(&self, settings: &Settings) -> StatementSettings {
        let postgres = PostgresSettings { is_cached: settings.statement_cache, location: Some(Arc::clone(&self.location)) };
        StatementSettings { postgres, ..StatementSettings::new(settings.deadline) }
    }

    /// The name of the database in messages.
    pub(crate) fn name(&self) -> Arc<str> {
        self.pool.name()
    }

    /// True if nothing can be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// False: PostgreSQL reads while others write.
    pub(crate) fn reads_wait_for_writer(&self) -> bool {
        false
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(&self, statement_settings: &StatementSettings, purpose: Purpose) -> impl Future<Output = Result<Tx>> + Send {
        self.begin_with(statement_settings, purpose, sql::BEGIN_POSTGRES)
    }

    /// Begins a transaction with this text.
    pub(super) async fn begin_with(&self, statement_settings: &StatementSettings, purpose: Purpose, text: &'static str) -> Result<Tx> {
        let taken = replanned(self.pool.take(purpose).await?, statement_settings).await?;
        let begun = taken.begun(statement_settings, async |conn| words(conn, text).await).await?;
        Ok(Tx::new(Side::Postgres(begun), statement_settings))
    }

    /// Begins a transaction that also runs a user's own statements.
    pub(crate) async fn begin_for_user(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        let taken = replanned(self.pool.take(Purpose::Long).await?, statement_settings).await?;
        let mut begun = taken.begun(statement_settings, async |conn| words(conn, sql::BEGIN_POSTGRES).await).await?;
        begun.guarded(statement_settings).hand_to_user().await?;
        Ok(Tx::new(Side::Postgres(begun), statement_settings))
    }

    /// A connection on which each statement is a transaction of its own.
    pub(crate) async fn reader(&self, statement_settings: &StatementSettings, purpose: Purpose) -> Result<Side> {
        self.take(statement_settings, purpose, false).await.map(Side::Postgres)
    }

    /// A connection for single statements that commit by themselves, with the planner settings of a commit. `None` behind a pooler, where
    /// the setting would affect other clients.
    pub(crate) async fn for_commits(&self, statement_settings: &StatementSettings) -> Result<Option<Side>> {
        if !self.is_direct || self.is_read_only {
            return Ok(None);
        }
        self.take(statement_settings, Purpose::Engine, true).await.map(Side::Postgres).map(Some)
    }

    /// Begins a transaction that reads one snapshot.
    pub(crate) async fn snapshot(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        self.read(statement_settings, Purpose::Long, sql::SNAPSHOT_POSTGRES).await
    }

    /// Begins a transaction that reads one snapshot, for statements that read whole tables. They are planned for the present size of the
    /// tables.
    pub(crate) async fn examination(&self, statement_settings: &StatementSettings) -> Result<Tx> {
        self.read(statement_settings, Purpose::Short, sql::EXAMINE_POSTGRES).await
    }

    async fn read(&self, statement_settings: &StatementSettings, purpose: Purpose, text: &'static str) -> Result<Tx> {
        let taken = self.take(statement_settings, purpose, false).await?;
        let begun = taken.begun(statement_settings, async |conn| words(conn, text).await).await?;
        Ok(Tx::new(Side::Postgres(begun), statement_settings))
    }

    /// A writable connection outside the pool.
    pub(crate) async fn dedicated(&self) -> Result<Side> {
        self.pool.dedicated().await.map(Side::Postgres)
    }

    /// Closes the connections that were idle for this long.
    pub(crate) fn rest(&self, limit: Duration) {
        self.pool.rest(limit);
    }

    /// Closes the idle connections and hands out no more.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// A connection whose session has the planner settings for commits, or the database's own.
    async fn take(&self, statement_settings: &StatementSettings, purpose: Purpose, is_pinned: bool) -> Result<Taken<PgConnection>> {
        let mut taken = self.pool.take_rather(purpose, |session| session.is_pinned == is_pinned).await?;
        if taken.session.is_pinned != is_pinned {
            say(&mut taken, statement_settings, if is_pinned { sql::PIN } else { sql::UNPIN }).await?;
            taken.session.is_pinned = is_pinned;
        }
        replanned(taken, statement_settings).await
    }
}

/// Discards cached plans that are old: the tables may have grown since.
async fn replanned(mut taken: Taken<PgConnection>, statement_settings: &StatementSettings) -> Result<Taken<PgConnection>> {
    if statement_settings.postgres.is_cached && taken.session.plans.are_old() {
        say(&mut taken, statement_settings, sql::FORGET_PLANS).await?;
    }
    Ok(taken)
}

/// Runs a statement that changes the session. If the future is dropped before it ends, the connection is not used again.
async fn say(taken: &mut Taken<PgConnection>, statement_settings: &StatementSettings, text: &'static str) -> Result<()> {
    let (conn, health) = taken.parts();
    health.is_broken = true;
    statement_settings.within(health, words(conn, text)).await?;
    health.is_broken = false;
    Ok(())
}

impl Connects for PgConnection {
    const RESTS_FOR: Option<Duration> = Some(RESTS_FOR);
    type Options = Arc<Location>;
    type Session = Session;

    async fn connect(options: &Arc<Location>) -> sqlx::Result<(PgConnection, Session)> {
        let (conn, host) = options.connect().await?;
        Ok((conn, Session { is_pinned: false, plans: Plans::new(), host }))
    }

    fn name(options: &Arc<Location>) -> Option<Arc<str>> {
        Some(options.name())
    }

    fn health(session: &Session) -> Health {
        Health { host: session.host, ..Health::default() }
    }

    async fn ping(&mut self) -> sqlx::Result<()> {
        Connection::ping(self).await
    }

    fn end<'c>(&'c mut self, health: &mut Health, ending: Ending) -> impl Future<Output = sqlx::Result<()>> + Send + use<'c> {
        // PostgreSQL answers the commit of a failed transaction with success. A statement before the commit reveals a failure of user code.
        let text = if ending == Ending::Commit && health.was_used_by_user { sql::COMMIT_AFTER_USER } else { ending.text() };
        words(self, text)
    }

    async fn close(self) {
        // The connection is not used again, so an error does not matter.
        let _ = Connection::close(self).await;
    }
}
