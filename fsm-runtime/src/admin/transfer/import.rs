//! Import of the lines of an export into a database, or into all of its partitions.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::partition::partition_of;
use fsm_store::transfer::{self, Field, TABLES};
use fsm_store::tx::Tx;
use fsm_store::{migrate, outbox};
use serde_json::Value;
use uuid::Uuid;

use super::elsewhere::check_without_partitions;
use super::lines::{SHAPE, TOGETHER, id_of, is_executing, parsed, text_of};
use super::routes::{Child, Destination, Misfit, Routed, Routes, waits_for_partition};
use crate::admin::opening::{Opened, Opening};
use crate::admin::{migrate as migrate_tables, partitions};
use crate::error::{Error, ErrorKind};

/// The limit on one statement of an import. The commit takes longest, because all rows then reach the disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An import in progress. Its rows become visible with [`finish`](Import::finish).
pub struct Import {
    /// The partitions by number, or the only database.
    targets: Vec<Target>,
    /// The partitions of the rows, if there are several targets.
    routes: Option<Routes>,
    machines: Option<Vec<String>>,
    imported: Imported,
    /// The rows that were read, with those that have no destination.
    read: u64,
    is_whole: bool,
}

/// A database without partitions, or one partition.
struct Target {
    opened: Opened,
    tx: Tx,
    waiting: (usize, Vec<Vec<Field>>),
    /// The instances of the export were there before, since an import that failed between two partitions. Nothing is written.
    is_there: bool,
    /// The number of instances of each machine in the export.
    instances: HashMap<String, u64>,
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// The names of the imported machines.
    pub machines: Vec<String>,
    /// The number of rows in all tables.
    pub rows: u64,
    /// The number of imported attempts that were executing. Their sessions are not imported, so a worker on this database treats them as
    /// lost.
    pub executing: u64,
    /// The number of rows that the export could not read, and of rows that belong to such an instance. They were not imported.
    pub unreadable: u64,
    /// The partitions that had the instances of the export already, because an import failed between two partitions.
    pub there_already: Vec<u32>,
}

/// Creates missing tables and begins an import, into all partitions if the database has several and none is selected. Its rows are visible to
/// nobody before [`Import::finish`].
pub async fn import(opening: &Opening) -> Result<Import, Error> {
    let listed = if opening.has_selected() { Vec::new() } else { partitions::list(opening).await? };
    let each: Vec<Opening> = match listed.len() {
        0 | 1 => vec![opening.clone()],
        _ => listed.into_iter().map(|listed| opening.clone().at_place(listed.place)).collect(),
    };
    let mut targets = Vec::with_capacity(each.len());
    for opening in &each {
        targets.push(Target::open(opening).await?);
    }
    let routes = (targets.len() > 1).then(|| Routes::new(u32::try_from(targets.len()).expect("there are at most 1024 partitions")));
    Ok(Import { targets, routes, machines: None, imported: Imported::default(), read: 0, is_whole: false })
}

impl Import {
    /// Reads the next line of an export.
    ///
    /// Returns an `is_input` error for a line that is not part of an export, and for a row that cannot be where it belongs: an instance of another
    /// partition than the selected one, a child that would come apart from its parent, a call under a limit in a database with partitions, and, in a
    /// database without partitions, an event that waits for another partition or a child in another partition than its parent that has not ended. Returns `is_conflict` if the database already has instances of
    /// one of the machines. After an error the import cannot be finished.
    pub async fn line(&mut self, line: &str) -> Result<(), Error> {
        let value: Value = serde_json::from_str(line).map_err(|error| Error::input(format!("the line is not JSON: {error}")))?;
        if self.is_whole {
            return Err(Error::input("there is more after the end of the export"));
        }
        let Some(machines) = &self.machines else { return self.begin(&value).await };
        if let Some(rows) = value["end"]["rows"].as_u64() {
            return self.end(rows).await;
        }
        let name = value["table"].as_str().unwrap_or_default();
        let table = (0..TABLES).find(|table| transfer::name(*table) == name);
        let table = table.ok_or_else(|| Error::input(format!("there is no table `{}`", name.escape_debug())))?;
        if value["unreadable"].is_object() {
            self.imported.unreadable += 1;
            return Ok(());
        }
        let row = parsed(table, &value["row"])?;
        if let Some(stranger) = text_of(table, &row, "machine").filter(|machine| !machines.iter().any(|known| known == machine)) {
            return Err(Error::input(format!("a row is of the machine `{}`, which the first line does not name", stranger.escape_debug())));
        }
        self.read += 1;
        let routed = match &mut self.routes {
            None => self.targets[0].take_all(table, row),
            Some(routes) => routes.route(table, row),
        };
        match routed {
            Ok(routed) => self.put(routed).await,
            Err(misfit) => Err(self.told(misfit).await),
        }
    }

    async fn put(&mut self, Routed { table, row, to }: Routed) -> Result<(), Error> {
        match to {
            Destination::Unknown => self.imported.unreadable += 1,
            Destination::Everywhere => {
                for target in &mut self.targets {
                    target.put(table, row.clone()).await?;
                }
                self.imported.rows += 1;
            }
            Destination::Partition(number) => {
                let target = &mut self.targets[number as usize];
                self.imported.rows += u64::from(!target.is_there);
                self.imported.executing += u64::from(!target.is_there && is_executing(table, &row));
                target.put(table, row).await?;
            }
        }
        Ok(())
    }

    /// Checks the first line, which describes the export.
    async fn begin(&mut self, head: &Value) -> Result<(), Error> {
        if head["fsm_export"].as_i64() != Some(SHAPE) {
            let says = format!("the first line is not that of an export: it has `fsm_export`, {SHAPE}");
            return Err(Error::input(says));
        }
        let (schema, ours) = (head["schema"].as_i64().unwrap_or_default(), migrate::newest());
        if schema != ours {
            let wake_up = "export and import with one release of `fsm`, after `fsm migrate up`";
            return Err(Error::input(format!("the export is of schema {schema}, and this program has schema {ours}: {wake_up}")));
        }
        let machines: Vec<String> = serde_json::from_value(head["machines"].clone())
            .map_err(|error| Error::input(format!("the first line does not name the machines: {error}")))?;
        let mut conflict = None;
        for target in &mut self.targets {
            for machine in &machines {
                target.instances.insert(machine.clone(), 0);
                if transfer::has_instances(&mut target.tx.conn(), machine).await? {
                    target.is_there = true;
                    conflict.get_or_insert(target.has_others(machine));
                }
            }
        }
        if let Some(conflict) = conflict.filter(|_| self.targets.iter().all(|target| target.is_there)) {
            return Err(conflict);
        }
        self.imported.machines = machines.clone();
        self.machines = Some(machines);
        Ok(())
    }

    /// Checks the last line, which has the number of rows, and what only the end tells.
    async fn end(&mut self, rows: u64) -> Result<(), Error> {
        self.is_whole = true;
        for target in &mut self.targets {
            target.flush().await?;
        }
        if let Some(Err(misfit)) = self.routes.as_mut().map(Routes::end) {
            return Err(self.told(misfit).await);
        }
        for target in &mut self.targets {
            target.check_number().await?;
        }
        let read = self.read;
        if read == rows { Ok(()) } else { Err(Error::input(format!("{read} rows were read, and the export had {rows}"))) }
    }

    /// The error for a row that cannot be imported. The parent of a child is named.
    async fn told(&mut self, misfit: Misfit) -> Error {
        let (Child { machine, key, partition, parent }, there) = match misfit {
            Misfit::Error(error) => return error,
            Misfit::Apart(child, there) => (child, there),
        };
        let parent = match self.targets[there as usize].name_of(parent).await {
            Ok(Some((machine, key))) => format!("`{machine}` `{}`", key.escape_debug()),
            Ok(None) => parent.to_string(),
            Err(error) => return error,
        };
        Error::input(format!(
            "`{machine}` `{}` belongs to partition {partition}, and its parent {parent} to partition {there}: it was started together with \
             its parent in one partition, and cannot be separated from it; keys with the same tag are together, as in `{{tenant}}-…`",
            key.escape_debug()
        ))
    }

    /// Commits all rows, of one partition after the other. Returns an `is_input` error if the last line of the export was not read; then nothing is
    /// imported.
    ///
    /// After an error between two commits, the first partitions have their rows. The import can be repeated, and leaves them as they are.
    pub async fn finish(self) -> Result<Imported, Error> {
        if !self.is_whole {
            return Err(Error::input(format!("the export is cut off after {} rows; nothing was kept", self.read)));
        }
        let (of, mut imported) = (self.targets.len(), self.imported);
        for (number, target) in self.targets.into_iter().enumerate() {
            imported.there_already.extend(u32::try_from(number).ok().filter(|_| target.is_there));
            if let Err(error) = target.tx.commit().await {
                let error = Error::from(error);
                return Err(match of {
                    1 => error,
                    _ => Error::other(
                        error.kind(),
                        format!("{error}; {number} of {of} partitions have their rows, and the import can be repeated for the others"),
                    ),
                });
            }
            target.opened.close().await;
        }
        Ok(imported)
    }
}

impl Target {
    async fn open(opening: &Opening) -> Result<Target, Error> {
        migrate_tables(opening).await?;
        let opened = opening.with_deadline(PATIENCE).await?;
        let mut tx = opened.store.begin().await?;
        transfer::lock(&mut tx.conn()).await?;
        Ok(Target { opened, tx, waiting: (0, Vec::new()), is_there: false, instances: HashMap::new() })
    }

    /// Takes a row of any table into the only target. Returns an error if it cannot be there.
    fn take_all(&self, table: usize, row: Vec<Field>) -> Result<Routed, Misfit> {
        let key = if transfer::name(table) == "instances" { text_of(table, &row, "key") } else { None };
        match (self.opened.partition, key) {
            (Some(partition), Some(key)) if !partition.has(key) => {
                let (belongs_to, number) = (partition_of(key, partition.of()), partition.number());
                let says = format!("the instance `{}` belongs to partition {belongs_to}, not {number}", key.escape_debug());
                Err(Misfit::Error(Error::input(says)))
            }
            (partition, _) if transfer::name(table) == "partition_outbox" && partition.is_none_or(|partition| partition.of() == 1) => {
                Err(Misfit::Error(waits_for_partition(table, &row)))
            }
            (None, _) => {
                check_without_partitions(table, &row).map_err(Misfit::Error)?;
                Ok(Routed { table, row, to: Destination::Partition(0) })
            }
            (Some(_), _) => Ok(Routed { table, row, to: Destination::Partition(0) }),
        }
    }

    async fn put(&mut self, table: usize, row: Vec<Field>) -> Result<(), Error> {
        if self.waiting.0 != table || self.waiting.1.len() >= TOGETHER as usize {
            self.flush().await?;
            self.waiting.0 = table;
        }
        self.waiting.1.push(row);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let (table, rows) = (self.waiting.0, std::mem::take(&mut self.waiting.1));
        if self.is_there {
            return self.check_rows(table, &rows).await;
        }
        transfer::write(&mut self.tx.conn(), table, &rows).await?;
        Ok(transfer::log(&mut self.tx.conn(), table, &rows).await?)
    }

    /// Checks that the instances among these rows are there already.
    async fn check_rows(&mut self, table: usize, rows: &[Vec<Field>]) -> Result<(), Error> {
        if transfer::name(table) != "instances" {
            return Ok(());
        }
        let ids: Vec<_> = rows.iter().filter_map(|row| id_of(table, row, "instance_id")).map(InstanceId).collect();
        let there = outbox::names(&mut self.tx.conn(), &ids).await?;
        for row in rows {
            let machine = text_of(table, row, "machine").unwrap_or_default();
            *self.instances.entry(machine.to_owned()).or_default() += 1;
            if id_of(table, row, "instance_id").is_none_or(|id| !there.contains_key(&InstanceId(id))) {
                return Err(self.has_others(machine));
            }
        }
        Ok(())
    }

    /// Checks that a target that has the instances of the export already has no others of their machines.
    async fn check_number(&mut self) -> Result<(), Error> {
        if !self.is_there {
            return Ok(());
        }
        for (machine, exported) in &self.instances {
            if transfer::has_more_instances(&mut self.tx.conn(), machine, *exported).await? {
                return Err(self.has_others(machine));
            }
        }
        Ok(())
    }

    fn has_others(&self, machine: &str) -> Error {
        let says =
            format!("{} has instances of `{}` already; nothing is ever overwritten", self.opened.store.place(), machine.escape_debug());
        Error::other(ErrorKind::Conflict, says)
    }

    /// The machine and the key of an instance among the rows of this target.
    async fn name_of(&mut self, instance: Uuid) -> Result<Option<(String, String)>, Error> {
        self.flush().await?;
        let instance = InstanceId(instance);
        Ok(outbox::names(&mut self.tx.conn(), &[instance]).await?.remove(&instance))
    }
}
