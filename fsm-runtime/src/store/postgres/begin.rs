//! The transactions of a committer on PostgreSQL.

use crate::store::error::Result;
use crate::store::open::{Pools, Store};
use crate::store::shares::Purpose;
use crate::store::sql;
use crate::store::tx::Tx;

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
