//! The write path as one transaction of the SQLite thread, for changes that were decided at a file version.

use fsm_core::changes::Changes;

use super::follow::{log, remember, save, search, timers, traces, waits};
use super::guards::{closed, created};
use super::row_version::payload;
use crate::store::error::Result;
use crate::store::file_version::FileVersion;
use crate::store::open::Store;
use crate::store::sink::Sink;
use crate::store::sql;
use crate::store::sqlite::file_versions::FileVersions;
use crate::store::sqlite::thread::Whole;

/// Writes and commits all of the changes, on SQLite, if the file version is unchanged, so that only this committer wrote since, and if
/// `still` returns true when the transaction has begun. Returns whether it wrote; if not, nothing is written.
pub async fn write_as_script(
    store: &Store,
    file_versions: &FileVersions,
    file_version: FileVersion,
    changes: &[&Changes],
    still: impl FnOnce() -> bool + Send + 'static,
) -> Result<bool> {
    let mut all = Whole::default();
    closed(changes, |rows| all.guard(&sql::CLOSE, &rows));
    created(changes, |rows| all.guard(&sql::CREATE, &rows))?;
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::Whole(&mut all);
    save(sink, changes, &payloads).await?;
    log(sink, changes).await?;
    waits(sink, changes).await?;
    timers(sink, changes).await?;
    remember(sink, changes).await?;
    search(sink, changes).await?;
    traces(sink, changes).await?;
    store.carry_out(file_versions, file_version, all, still).await
}
