//! The privileges of this process in the database that change its behaviour.

use tokio::sync::OnceCell;

use super::error::Result;
use super::open::Store;
use super::sql;

/// The cached answer to whether this process may begin calls.
#[derive(Debug, Default)]
pub(super) struct Rights {
    begins_calls: OnceCell<bool>,
}

impl Store {
    /// True if a send of this process may begin a call. PostgreSQL's role `fsm_sender` may not: its events wait in the inbox until a
    /// worker takes them. The database is asked once.
    pub(crate) async fn may_begin_calls(&self) -> Result<bool> {
        if !self.is_postgres() {
            return Ok(true);
        }
        let asked = self.rights().begins_calls.get_or_try_init(|| async {
            let rows = self.reader().await?.conn().rows(&sql::MAY_BEGIN_CALLS, &[]).await?;
            rows.first().map_or(Ok(true), |row| row.get(0))
        });
        asked.await.copied()
    }

    /// The cached answer of [`may_begin_calls`](Store::may_begin_calls), or true if the database was not asked yet.
    pub(crate) fn begins_calls(&self) -> bool {
        self.rights().begins_calls.get().copied().unwrap_or(true)
    }
}
