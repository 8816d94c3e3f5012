//! The privileges of this process in the database that change its behaviour.

use tokio::sync::OnceCell;

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// The cached answer to whether this process may begin calls.
#[derive(Debug, Default)]
pub(super) struct Rights {
    begins_calls: OnceCell<bool>,
}

impl Rights {
    /// The cached answer; `None` if the database was not asked yet.
    pub(super) fn begins_calls(&self) -> Option<bool> {
        self.begins_calls.get().copied()
    }

    /// Asks the PostgreSQL database, unless another task has done so in the meantime.
    pub(super) async fn ask(&self, conn: &mut Conn<'_>) -> Result<bool> {
        let asked = self.begins_calls.get_or_try_init(|| async {
            let rows = conn.rows(&sql::MAY_BEGIN_CALLS, &[]).await?;
            rows.first().map_or(Ok(true), |row| row.get(0))
        });
        asked.await.copied()
    }
}
