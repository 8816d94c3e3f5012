//! The place of a partition: its schema and its database.

use std::sync::Arc;

use fsm_core::partition::Partition;

use super::address;
use super::settings::{DirectoryEntry, Settings};

/// The place of a partition, as the directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPlace {
    /// The partition.
    pub partition: Partition,
    /// The schema of its tables.
    pub schema: String,
    /// The URL of its database; `None` for the database of the directory.
    pub url: Option<String>,
    /// The number of places that the partition has had, with this one.
    pub place_number: i64,
    /// The URL to which the partition is being moved.
    pub moving_to: Option<String>,
}

/// The place of a partition for a connection that it shares with others.
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL has partitions"))]
pub(super) struct SharedPlace {
    /// Partitions with equal ones are on one server and differ in their schemas only.
    pub(super) server: Arc<str>,
    /// The setting that selects the schema.
    pub(super) search_path: String,
    /// The row that the schema has about itself: the number of the partition, the number of all, and the number of the place.
    pub(super) itself: (i64, i64, i64),
}

impl PartitionPlace {
    /// The place of a partition that is created: the schema is named after the number.
    pub fn new(partition: Partition, url: Option<String>) -> PartitionPlace {
        PartitionPlace { partition, schema: format!("fsm_{:04}", partition.number()), url, place_number: 1, moving_to: None }
    }

    /// The URL without its password.
    pub fn shown_url(&self) -> Option<String> {
        self.url.as_deref().map(address::without_password)
    }

    /// The URL to which the partition is being moved, without its password.
    pub fn shown_target(&self) -> Option<String> {
        self.moving_to.as_deref().map(address::without_password)
    }

    /// The settings to open this partition, for a directory that was opened with `directory`. The store follows the partition to other places.
    pub fn settings(&self, directory: &Settings) -> Settings {
        let entry = DirectoryEntry { url: directory.url.clone(), partition: self.partition, place_number: self.place_number };
        Settings { directory: Some(entry), ..self.here(directory) }
    }

    /// The settings to open the schema at this place, whether or not the directory lists it.
    pub(super) fn here(&self, directory: &Settings) -> Settings {
        let url = self.url.clone().unwrap_or_else(|| directory.url.clone());
        Settings { url, schema: Some(self.schema.clone()), directory: None, ..directory.clone() }
    }
}
