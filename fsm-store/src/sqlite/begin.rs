//! The transactions of a committer on SQLite.

use fsm_core::commit::rows::FileVersion;

use super::file_versions::FileVersions;
use super::pools::SqlitePools;
use crate::error::Result;
use crate::open::{Pools, Store};
use crate::shares::Purpose;
use crate::tx::Tx;

impl Store {
    /// The connections to SQLite; `None` for PostgreSQL.
    pub(super) fn sqlite(&self) -> Option<&SqlitePools> {
        match self.pools() {
            Pools::Sqlite(pools) => Some(pools),
            #[cfg(feature = "postgres")]
            Pools::Postgres(_) => None,
        }
    }

    /// Like [`begin`](Store::begin), but for a committer. Also returns the file version of a SQLite file: while it is unchanged, what the
    /// committer read earlier is still current.
    pub async fn begin_at_file_version(&self, file_versions: &FileVersions) -> Result<(Tx, Option<FileVersion>)> {
        let Some(pools) = self.sqlite() else { return Ok((self.begin_for(Purpose::Engine).await?, None)) };
        self.check_writable()?;
        let tx = self.naming(pools.begin_uncounted(self.statement_settings(), Purpose::Engine).await)?;
        let Some(turns) = &pools.turns else { return Ok((tx, None)) };
        let mut tx = tx.counted(Some(turns.begin(Some(file_versions))));
        let file_version = file_versions.now(turns, tx.number(), &mut tx.conn()).await?;
        Ok((tx, file_version))
    }
}
