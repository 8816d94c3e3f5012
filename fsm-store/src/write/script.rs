//! The write path as one transaction of the SQLite thread, for changes that were decided at a file version.

use fsm_core::changes::Changes;
use fsm_core::commit::rows::FileVersion;
use fsm_core::commit::written::payload;

use super::follow::{all_but_inbox, waits};
use super::guards::{close_row, created, error_of};
use crate::error::Result;
use crate::open::Store;
use crate::sink::Sink;
use crate::sql;
use crate::sqlite::file_versions::FileVersions;
use crate::sqlite::thread::Whole;

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
    let closes: Vec<_> = changes.iter().filter_map(|change| Some((change.instance.id, change.close.as_ref()?))).collect();
    let errors: Vec<_> = closes.iter().map(|(_, close)| error_of(close)).collect();
    let rows = closes.iter().zip(&errors).map(|((instance, close), error)| close_row(*instance, close, error.as_deref()));
    all.guard(&sql::CLOSE, &rows.collect());
    created(changes, |rows| all.guard(&sql::CREATE, &rows))?;
    let payloads: Vec<_> = changes.iter().map(|change| payload(change)).collect();
    let sink = &mut Sink::Whole(&mut all);
    waits(sink, changes).await?;
    all_but_inbox(sink, changes, &payloads).await?;
    store.carry_out(file_versions, file_version, all, still).await
}
