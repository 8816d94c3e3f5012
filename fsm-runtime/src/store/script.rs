//! Transactions that SQLite's thread carries out by itself, from beginning to end. Whoever comes next need not wait until this process has
//! heard of it: what he orders is carried out next.

use sqlx::SqlSafeStr;

use super::error::Result;
use super::file_version::{FileVersion, FileVersions};
use super::guarded::within;
use super::open::Store;
use super::rows::Row;
use super::shares::Purpose;
use super::sql::{Many, Sql};
use super::sqlite::rows;
use super::thread::{SqliteCommand, Whole, ask_in_turn};
use super::values::{Value, kept};

impl Store {
    /// Carries out a transaction of that committer's, if the epoch lasts when its turn has come and `still` holds then. Whether it is
    /// committed; if not, nothing is written. After an error the outcome is not known.
    pub(super) async fn carry_out(
        &self,
        file_versions: &FileVersions,
        file_version: FileVersion,
        whole: Whole,
        still: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool> {
        let Some((writer, Some(turns))) = self.writer() else { return Ok(false) };
        let mut taken = writer.take(Purpose::Engine).await?;
        let turn = turns.begin(Some(file_versions));
        if taken.session.id != file_version.connection || file_versions.others(turns) != file_version.others {
            return Ok(false);
        }
        self.failpoint().pass(|| "before a transaction was carried out".to_owned()).await?;
        let done = taken.parts().0.dedicated(move |connection| whole.carry_out(connection, file_version.data_version, still));
        drop(turn);
        drop(taken);
        let is_committed = within(self.deadline(), done).await?;
        // It was done, and a process that dies here never hears of it.
        self.failpoint().pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
        Ok(is_committed)
    }

    /// Runs a statement that writes, and asks another one for each row that it answers with, in a transaction of their own that ends no
    /// epoch: it changes nothing that a committer decides on. `None` for PostgreSQL.
    pub(super) async fn write_and_ask(&self, write: &Sql, values: &[Value<'_>], ask: &Many) -> Result<Option<Vec<Row>>> {
        let Some((writer, _)) = self.writer() else { return Ok(None) };
        let (said, each) = (SqliteCommand::once(write.sqlite.into_sql_str(), values), kept(ask, false));
        let mut taken = writer.take(Purpose::Engine).await?;
        self.failpoint().pass(|| "before a transaction was carried out".to_owned()).await?;
        let done = taken.parts().0.dedicated(move |connection| ask_in_turn(&said, each, connection));
        drop(taken);
        let answer = within(self.deadline(), done).await?;
        self.failpoint().pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
        self.failpoint().answered(answer.rows());
        Ok(Some(rows(answer)))
    }
}
