//! Transactions that the SQLite thread runs by itself from beginning to end. The next transaction follows directly on that thread and does
//! not wait until tokio has received the result.

use fsm_core::commit::rows::FileVersion;
use fsm_core::ids::SessionId;
use sqlx::SqlSafeStr;

use super::file_versions::FileVersions;
use super::statements::rows;
use super::thread::{SqliteCommand, Whole, ask_in_turn};
use crate::error::Result;
use crate::guarded::within;
use crate::open::Store;
use crate::rows::Row;
use crate::shares::Purpose;
use crate::sql::{Many, Sql};
use crate::values::{Value, kept, values};

/// The row that a claim adds to its session's log.
pub(crate) struct SqliteLog<'l> {
    pub put: &'l Many,
    pub session: SessionId,
    pub number: i64,
}

impl Store {
    /// Runs a transaction of the committer if the file version is unchanged and `still` returns true at its beginning. Returns whether it
    /// committed; if not, nothing is written. After an error the outcome is unknown.
    pub(crate) async fn carry_out(
        &self,
        file_versions: &FileVersions,
        file_version: FileVersion,
        whole: Whole,
        still: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool> {
        let Some(pools) = self.sqlite() else { return Ok(false) };
        let Some(turns) = &pools.turns else { return Ok(false) };
        let mut taken = pools.writer.take(Purpose::Engine).await?;
        let turn = turns.begin(Some(file_versions));
        if taken.number != file_version.connection || file_versions.others(turns) != file_version.others {
            return Ok(false);
        }
        self.statement_settings().failpoint.pass(|| "before a transaction was carried out".to_owned()).await?;
        let done = taken.parts().0.dedicated(move |connection| whole.carry_out(connection, file_version.data_version, still));
        drop(turn);
        drop(taken);
        let is_committed = within(self.deadline(), done).await?;
        // The failpoint where the transaction has committed and the process dies before it gets the answer.
        self.statement_settings().failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
        Ok(is_committed)
    }

    /// Runs a statement that writes, adds the ids that it returns to a session log, and runs `ask` for each id, in one transaction. This
    /// does not change the file version, because it writes nothing that a committer's decision depends on. Returns `None` for PostgreSQL.
    pub(crate) async fn write_and_ask(
        &self,
        write: &Sql,
        values: &[Value<'_>],
        ask: &Many,
        log: SqliteLog<'_>,
    ) -> Result<Option<Vec<Row>>> {
        let Some(pools) = self.sqlite() else { return Ok(None) };
        let (said, each) = (SqliteCommand::once(write.sqlite.into_sql_str(), values), kept(ask, false));
        let mut taken = pools.writer.take(Purpose::Engine).await?;
        self.statement_settings().failpoint.pass(|| "before a transaction was carried out".to_owned()).await?;
        let (put, session, number) = (kept(log.put, false), log.session, log.number);
        let log = move |ids: &[u8]| SqliteCommand::once(put, &values![session.0, number, ids]);
        let done = taken.parts().0.dedicated(move |connection| ask_in_turn(&said, log, each, connection));
        drop(taken);
        let answer = within(self.deadline(), done).await?;
        self.statement_settings().failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
        self.statement_settings().failpoint.answered(answer.rows());
        Ok(Some(rows(answer)))
    }
}
