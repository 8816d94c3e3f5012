//! Making the pools of connections to a database.

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::{Kind, Settings, Synchronous};
use crate::store::address::SqliteFile;
use crate::store::conn::Conn;
use crate::store::error::{Result, StoreError};
use crate::store::file_version::Turns;
use crate::store::guarded::{GuardedConnection, StatementSettings};
use crate::store::pool::Pool;
use crate::store::servers::{Servers, is_setting_refused};
use crate::store::shares::Purpose;
use crate::store::thread::{SqliteOptions, SqliteThread};
use crate::store::turn::BUSY_TIMEOUT;
use crate::store::{reading, sql};

/// The number of SQLite connections for reads.
const READERS: usize = 4;
/// The first version without the bug that can corrupt a database when its WAL is reset.
const OLDEST_SQLITE: [u32; 3] = [3, 51, 3];

pub(super) async fn memory(settings: &Settings) -> Result<(String, Kind)> {
    // This VFS in memory locks like a file without WAL: a transaction that writes blocks readers until it ends.
    let (place, vfs) = ("the database in memory", "memdb");
    let name = format!("/fsm-{}", uuid::Uuid::new_v4());
    let to_write = SqliteOptions {
        file: name.clone().into(),
        vfs: Some(vfs.to_owned()),
        is_read_only: false,
        is_immutable: false,
        pragmas: told("pragma journal_mode = memory"),
    };
    let to_read = SqliteOptions { pragmas: told("pragma query_only = on"), ..to_write.clone() };
    let for_user = user_options(SqliteConnectOptions::new().filename(name).vfs(vfs)).journal_mode(SqliteJournalMode::Memory);
    let writer = Pool::<SqliteThread>::new(place, to_write, 1, settings.deadline);
    let readers = Pool::new(place, to_read, READERS, settings.deadline);
    let user_sqlite = Pool::new(place, for_user, 1, settings.deadline);
    let anchor = writer.dedicated().await?;
    check_sqlite(&writer).await?;
    Ok((place.into(), Kind::Sqlite { writer, readers, user_sqlite, turns: None, _anchor: Some(Box::new(tokio::sync::Mutex::new(anchor))) }))
}

pub(super) async fn file(settings: &Settings, file: SqliteFile) -> Result<(String, Kind)> {
    let place = format!("the SQLite database `{}`", file.path.display());
    let has_wal = reading::has_wal(&file.path);
    let to_read = SqliteOptions {
        file: file.path.clone(),
        vfs: file.vfs.clone(),
        is_read_only: true,
        is_immutable: file.is_immutable,
        pragmas: told(""),
    };
    let (synchronous, synchronous_for_user) = match settings.synchronous {
        Synchronous::Full => ("full", SqliteSynchronous::Full),
        Synchronous::Normal => ("normal", SqliteSynchronous::Normal),
    };
    let to_write = match settings.read_only {
        true => to_read.clone(),
        // The short busy timeout comes last, after the journal mode is set: from then on the store itself retries while another process
        // writes.
        false => SqliteOptions {
            is_read_only: file.is_read_only,
            pragmas: told(&format!("pragma journal_mode = wal; pragma synchronous = {synchronous}; pragma busy_timeout = 1")),
            ..to_read.clone()
        },
    };
    let for_user = user_options(*file.options).synchronous(synchronous_for_user).pragma("busy_timeout", "1");
    let mut writer = Pool::new(&place, to_write, 1, settings.deadline);
    let mut readers = Pool::new(&place, to_read.clone(), READERS, settings.deadline);
    let user_sqlite = Pool::new(&place, for_user, 1, settings.deadline);
    // If the index of the WAL cannot be created and there is no WAL, no process writes: the file alone is the whole database.
    if settings.read_only && !has_wal && !reading::can_share(&writer).await {
        let alone = SqliteOptions { is_immutable: true, ..to_read };
        writer = Pool::new(&place, alone.clone(), 1, settings.deadline);
        readers = Pool::new(&place, alone, READERS, settings.deadline);
    }
    check_sqlite(&writer).await?;
    Ok((place, Kind::Sqlite { writer, readers, user_sqlite, turns: Some(Turns::default()), _anchor: None }))
}

fn user_options(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options.create_if_missing(false).busy_timeout(BUSY_TIMEOUT).foreign_keys(true).disable_statement_logging()
}

/// The first statements on each SQLite connection: the common ones, then `pragmas`.
fn told(pragmas: &str) -> String {
    format!("pragma foreign_keys = on; pragma busy_timeout = {}; {pragmas}", BUSY_TIMEOUT.as_millis())
}

/// Makes the first connection and checks the version of SQLite.
async fn check_sqlite(writer: &Pool<SqliteThread>) -> Result<()> {
    let mut taken = writer.take(Purpose::Short).await?;
    let (conn, health) = taken.parts();
    let rows = Conn::Sqlite(GuardedConnection::new(conn, StatementSettings::DEFAULT, health)).rows(&sql::SQLITE_VERSION, &[]).await?;
    let found: String = rows.first().map(|row| row.get(0)).transpose()?.unwrap_or_default();
    let numbers: Vec<u32> = found.split('.').map_while(|part| part.parse().ok()).collect();
    if numbers.as_slice() < OLDEST_SQLITE.as_slice() { Err(StoreError::OldSqlite { found }) } else { Ok(()) }
}

pub(super) async fn servers(settings: &Settings, servers: Servers) -> Result<(String, Kind)> {
    let name = servers.first().get_database().unwrap_or(servers.first().get_username());
    let place = match servers.first().get_socket() {
        Some(_) => format!("the PostgreSQL server at `{}`", servers.names()),
        None => format!("the PostgreSQL database `{name}` at `{}`", servers.names()),
    };
    let timeout_ms = settings.deadline.as_millis().to_string();
    let mut options = servers.each(|options| {
        let mut options = options.disable_statement_logging();
        if !settings.statement_cache {
            options = options.statement_cache_capacity(0);
        }
        if settings.read_only {
            options = options.options([("default_transaction_read_only", "on"), ("statement_timeout", &timeout_ms)]);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("durable-fsm");
        }
        options
    });
    if settings.read_only {
        options = options.for_reading();
    }
    let pool_of = |options| Pool::<PgConnection>::new(&place, options, settings.connections.max(1) as usize, settings.deadline);
    if settings.statement_cache {
        // A pooler either refuses an unknown setting when a connection begins, or does not pass it on to the server.
        let pool = pool_of(options.clone().each(|options| options.options([(sql::MARK, "on")])));
        match is_marked(&pool).await {
            Ok(true) => return Ok((place, Kind::Postgres { pool, is_direct: true })),
            Ok(false) => {}
            Err(StoreError::Unreachable { source, .. }) if is_setting_refused(&source) => {}
            Err(error) => return Err(error),
        }
    }
    let pool = pool_of(options);
    drop(pool.take(Purpose::Short).await?);
    Ok((place, Kind::Postgres { pool, is_direct: false }))
}

/// True if a setting that the connection requested at its start is set in the session in which its statements run. No pooler is between
/// then.
async fn is_marked(pool: &Pool<PgConnection>) -> Result<bool> {
    let mut taken = pool.take(Purpose::Short).await?;
    let (conn, health) = taken.parts();
    let rows = Conn::Postgres(GuardedConnection::new(conn, StatementSettings::DEFAULT, health)).rows(&sql::IS_MARKED, &[]).await?;
    rows.first().map_or(Ok(false), |row| row.get(0))
}
