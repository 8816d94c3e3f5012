//! A version of a SQLite file: it shows whether anybody but the committer wrote to the file since it was read.

/// A version of a SQLite file. While it is unchanged, no other writer has changed rows that decisions depend on, so that two reads differ
/// only by this committer's own writes. A claim does not change it, because no decision depends on the columns that a claim writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The number of the writer's connection. `data_version` is only comparable on the same connection.
    pub(super) connection: u64,
    /// SQLite's `data_version`, which changes when another connection commits.
    pub(super) data_version: i64,
    /// The number of transactions on the writer's connection that were not the committer's. Claims are not counted.
    pub(super) others: u64,
}
