//! The output and the database of a command, shared by all commands.

use fsm_core::partition::partition_of;
use fsm_runtime::admin::partitions::{self, ListedPartition};
use fsm_runtime::admin::whole::WholeDatabase;
use fsm_runtime::admin::{Admin, Opening};
use serde_json::Value;

use crate::problem::Problem;
use crate::stage::Stage;

/// A command's output and database.
pub(super) struct Session<'s, 'a> {
    pub(super) stage: &'s mut Stage<'a>,
    /// The way to open the database for reading.
    pub(super) opening: Opening,
    /// The partition that the arguments select.
    pub(super) partition: Option<u32>,
    pub(super) is_json: bool,
}

impl Session<'_, '_> {
    pub(super) async fn to_read(&self) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone()).await?)
    }

    pub(super) async fn to_act(&self) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone().acting()).await?)
    }

    /// Opens all partitions for reading, or the partition that the arguments select.
    pub(super) async fn to_read_all(&self) -> Result<WholeDatabase, Problem> {
        Ok(WholeDatabase::open(self.opening.clone()).await?)
    }

    /// Opens all partitions for acts, or the partition that the arguments select.
    pub(super) async fn to_act_on_all(&self) -> Result<WholeDatabase, Problem> {
        Ok(WholeDatabase::open(self.opening.clone().acting()).await?)
    }

    /// Prints a warning for each partition that could not be read. Returns a `Database` error if there is one.
    pub(super) fn check_partitions(&mut self, database: &WholeDatabase) -> Result<(), Problem> {
        let failures = database.take_failures();
        for (number, error) in &failures {
            self.stage.say(&format!("warning: partition {number} is left out: {error}"));
        }
        match failures.len() {
            0 => Ok(()),
            n => Err(Problem::Database(format!("{n} of {} partitions could not be read", database.number()))),
        }
    }

    /// Opens the partition of this key for reading, or the partition that the arguments select.
    pub(super) async fn to_read_key(&self, key: &str) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone().of_key(key)).await?)
    }

    /// Opens the partition of this key for acts, or the partition that the arguments select.
    pub(super) async fn to_act_on_key(&self, key: &str) -> Result<Admin, Problem> {
        Ok(Admin::open(self.opening.clone().of_key(key).acting()).await?)
    }

    /// All partitions, by number. Empty if the database has no partitions or if the arguments select one.
    pub(super) async fn partitions(&self) -> Result<Vec<ListedPartition>, Problem> {
        if self.partition.is_some() { Ok(Vec::new()) } else { Ok(partitions::list(&self.opening).await?) }
    }

    /// The ways to open all partitions, each with its number. One way without a number if the database has no partitions or if the arguments
    /// select one.
    pub(super) async fn each_partition(&self) -> Result<Vec<(Option<u32>, Opening)>, Problem> {
        let all = self.partitions().await?;
        if all.is_empty() {
            return Ok(vec![(None, self.opening.clone())]);
        }
        let numbers = all.iter().map(|one| one.place.partition.number());
        Ok(numbers.map(|number| (Some(number), self.opening.clone().partition(number))).collect())
    }
}

/// Returns a `Usage` error if this key belongs to another partition than the one that is open: an instance must not be created there.
pub(super) fn check_key(admin: &Admin, key: &str) -> Result<(), Problem> {
    match admin.partition() {
        Some(partition) if !partition.has(key) => {
            let (belongs_to, number) = (partition_of(key, partition.of()), partition.number());
            Err(Problem::Usage(format!("`{key}` belongs to partition {belongs_to}, not {number}; leave out `--partition`")))
        }
        _ => Ok(()),
    }
}

/// The JSON of a row, with the number of its partition if the database has partitions.
pub(super) fn located(partition: Option<u32>, mut json: Value) -> Value {
    if let Some(number) = partition {
        json["partition"] = number.into();
    }
    json
}
