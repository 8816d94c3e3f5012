//! Reading a SQLite file where nothing can be written, not even beside it.

use std::path::Path;

use super::conn::Conn;
use super::guarded::{GuardedConnection, Rules};
use super::pool::Pool;
use super::shares::Purpose;
use super::sql;
use super::thread::SqliteThread;

/// Whether somebody has the file open in WAL mode, or left in the middle.
pub(super) fn has_wal(file: &Path) -> bool {
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    Path::new(&wal).exists()
}

/// Whether SQLite can read the file as one that others write to. If not, the reason shows when it is read in the other way.
pub(super) async fn can_share(readers: &Pool<SqliteThread>) -> bool {
    let Ok(mut taken) = readers.take(Purpose::Short).await else { return false };
    let (conn, health) = taken.parts();
    Conn::Sqlite(GuardedConnection::new(conn, Rules::DEFAULT, health)).rows(&sql::MIGRATION_TABLE_EXISTS, &[]).await.is_ok()
}
