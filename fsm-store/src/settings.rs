//! The settings for the use of a database.

use std::time::Duration;

use fsm_core::partition::Partition;

use super::address;
#[cfg(feature = "postgres")]
use super::postgres::shared_listener::ListeningConnections;

/// The database, and the settings for its use.
#[derive(Clone)]
pub struct Settings {
    /// `sqlite://payments.db`, `sqlite:payments.db`, `payments.db`, `sqlite::memory:` or `postgres://…`.
    pub url: String,
    /// The schema of the tables on PostgreSQL; `None` for the first one of the session's search path.
    pub schema: Option<String>,
    /// The directory that lists the schema as a partition. A partition that is no longer at its place is looked up there.
    pub directory: Option<DirectoryEntry>,
    /// The maximum number of PostgreSQL connections, without those outside the pool. With three or more, a quarter is reserved for commits
    /// and claims, and at most half are in transactions that user code ends.
    pub connections: u32,
    /// The durability of a SQLite commit.
    pub synchronous: Synchronous,
    /// The limit on one operation: a statement, a commit, the wait for a connection.
    pub deadline: Duration,
    /// True if prepared statements are cached. Must be `false` for PgBouncer in transaction mode.
    pub statement_cache: bool,
    /// True if nothing is written on these connections, by this crate or by the database itself. A missing file is not created.
    pub read_only: bool,
    /// The listening connections, which the partitions that are opened with clones of these settings share.
    #[cfg(feature = "postgres")]
    pub listening: ListeningConnections,
}

/// The entry of a partition in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The URL of the database with the directory.
    pub url: String,
    /// The partition.
    pub partition: Partition,
    /// The number of times, from 1, that the partition got a place.
    pub place_number: i64,
}

/// The durability of a SQLite commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A commit waits until the data is on disk. It survives a power failure.
    #[default]
    Full,
    /// A commit waits for the operating system. It survives the death of the process, but a power failure may lose the last commits.
    Normal,
}

impl Settings {
    /// The defaults: 8 connections, full durability, a deadline of 30 s, read and write. Prepared statements are cached unless the URL has
    /// `statement-cache-capacity=0`.
    pub fn new(url: impl Into<String>) -> Settings {
        let url = url.into();
        let statement_cache = address::keeps_statements(&url);
        Settings {
            url,
            schema: None,
            directory: None,
            connections: 8,
            synchronous: Synchronous::Full,
            deadline: Duration::from_secs(30),
            statement_cache,
            read_only: false,
            #[cfg(feature = "postgres")]
            listening: ListeningConnections::default(),
        }
    }
}
