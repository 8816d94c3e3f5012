//! Which rights this process has in the database, where that changes what it does.

use tokio::sync::OnceCell;

use super::error::Result;
use super::open::Store;
use super::sql;

/// Whether this process may begin calls, once that is known.
#[derive(Debug, Default)]
pub(super) struct Rights {
    begins_calls: OnceCell<bool>,
}

impl Store {
    /// Whether a send of this process may begin a call. PostgreSQL's role `fsm_sender` must not: what it sends waits in the inbox until a
    /// worker takes it. Asked once.
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

    /// The same as far as it is known already; a process may unless it is known to have no right to.
    pub(crate) fn begins_calls(&self) -> bool {
        self.rights().begins_calls.get().copied().unwrap_or(true)
    }
}
