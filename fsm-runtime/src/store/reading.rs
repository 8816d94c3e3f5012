//! Reading a SQLite file where neither the file nor its directory can be written.

use std::path::Path;

use super::conn::Conn;
use super::guarded::{GuardedConnection, StatementSettings};
use super::pool::Pool;
use super::shares::Purpose;
use super::sql;
use super::thread::SqliteThread;

/// True if the file has a WAL, because a process has it open or a process died while it had it open.
pub(super) fn has_wal(file: &Path) -> bool {
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    Path::new(&wal).exists()
}

/// True if SQLite can read the file with locks, so that others may write to it. If not, the reason shows when the file is opened as
/// immutable.
pub(super) async fn can_share(readers: &Pool<SqliteThread>) -> bool {
    let Ok(mut taken) = readers.take(Purpose::Short).await else { return false };
    let (conn, health) = taken.parts();
    Conn::Sqlite(GuardedConnection::new(conn, StatementSettings::DEFAULT, health)).rows(&sql::MIGRATION_TABLE_EXISTS, &[]).await.is_ok()
}
