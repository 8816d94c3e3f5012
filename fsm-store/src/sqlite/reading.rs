//! Reading a SQLite file where neither the file nor its directory can be written.

use std::path::Path;

use super::thread::SqliteThread;
use crate::guarded::StatementSettings;
use crate::pool::Pool;
use crate::shares::Purpose;
use crate::sql;

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
    taken.guarded(&StatementSettings::DEFAULT).rows(&sql::MIGRATION_TABLE_EXISTS, &[]).await.is_ok()
}
