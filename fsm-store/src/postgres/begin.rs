//! The transactions of a committer on PostgreSQL.

use crate::error::Result;
use crate::open::{Pools, Store};
use crate::shares::Purpose;
use crate::sql;
use crate::tx::Tx;

impl Store {
    /// Like [`begin`](Store::begin), but for a committer, which waits only shortly for locks.
    pub async fn begin_for_commit(&self) -> Result<Tx> {
        self.check_writable()?;
        match self.pools() {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(_) => self.begin_for(Purpose::Engine).await,
            Pools::Postgres(pool) => {
                self.naming(pool.begin_with(self.statement_settings(), Purpose::Engine, sql::BEGIN_COMMIT_POSTGRES).await)
            }
        }
    }
}
