//! Opening a SQLite database: a file, or one in memory.

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::file::{Place, SqliteFile};
use super::file_versions::Turns;
use super::pools::SqlitePools;
use super::reading;
use super::thread::{SqliteOptions, SqliteThread};
use super::turn::BUSY_TIMEOUT;
use crate::error::{Result, StoreError};
use crate::guarded::StatementSettings;
use crate::pool::Pool;
use crate::settings::{Settings, Synchronous};
use crate::shares::Purpose;
use crate::sql;

/// The number of SQLite connections for reads.
const READERS: usize = 4;
/// The first version without the bug that can corrupt a database when its WAL is reset.
const OLDEST_SQLITE: [u32; 3] = [3, 51, 3];

impl SqlitePools {
    /// Opens the database of the URL and makes a first connection.
    pub(crate) async fn open(settings: &Settings) -> Result<SqlitePools> {
        match Place::parse(&settings.url)? {
            Place::Memory => memory(settings).await,
            Place::File(file) => {
                let read_only = settings.read_only || file.is_read_only;
                self::file(settings, file).await.map_err(|error| match error {
                    StoreError::NotWritable { place } if read_only => StoreError::ReadOnly { place },
                    error => error,
                })
            }
        }
    }
}

async fn memory(settings: &Settings) -> Result<SqlitePools> {
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
    let anchor = Some(Box::new(tokio::sync::Mutex::new(anchor)));
    Ok(SqlitePools { writer, readers, user_sqlite, turns: None, anchor, is_read_only: settings.read_only })
}

async fn file(settings: &Settings, file: SqliteFile) -> Result<SqlitePools> {
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
    let is_read_only = settings.read_only || file.is_read_only;
    Ok(SqlitePools { writer, readers, user_sqlite, turns: Some(Turns::default()), anchor: None, is_read_only })
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
    let rows = taken.guarded(&StatementSettings::DEFAULT).rows(&sql::SQLITE_VERSION, &[]).await?;
    let found: String = rows.first().map(|row| row.get(0)).transpose()?.unwrap_or_default();
    let numbers: Vec<u32> = found.split('.').map_while(|part| part.parse().ok()).collect();
    if numbers.as_slice() < OLDEST_SQLITE.as_slice() { Err(StoreError::OldSqlite { found }) } else { Ok(()) }
}
