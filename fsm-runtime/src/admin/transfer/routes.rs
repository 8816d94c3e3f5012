//! The partition of each row of an export, for an import into a database with partitions.

use std::collections::{BTreeMap, HashMap, HashSet};

use fsm_core::machine::Machine;
use fsm_core::partition::partition_of;
use fsm_store::transfer::{self, Field, TABLES};
use uuid::Uuid;

use super::lines::{field_of, id_of, text_of};
use crate::error::Error;

/// The destination of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The partition with this number.
    Partition(u32),
    /// All partitions.
    Everywhere,
    /// None: a database with partitions has no use for the row.
    Nowhere,
    /// None: the instance of the row is not part of the export.
    Unknown,
}

/// A row with its destination. An event may go to another table than the one that it was in.
#[derive(Debug, PartialEq)]
pub(super) struct Routed {
    pub(super) table: usize,
    pub(super) row: Vec<Field>,
    pub(super) to: Destination,
}

/// A child that would be in another partition than its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) machine: String,
    pub(super) key: String,
    pub(super) partition: u32,
    pub(super) parent: Uuid,
}

/// The reason why a row cannot be imported.
#[derive(Debug)]
pub(super) enum Misfit {
    Error(Error),
    /// The child, and the partition of its parent.
    Apart(Child, u32),
}

/// The partitions of the rows that were read so far. Each instance takes about 32 bytes.
pub(super) struct Routes {
    partitions: u32,
    /// The partition of each instance.
    homes: HashMap<Uuid, u16>,
    /// The children whose parents were not read yet.
    children: Vec<Child>,
    /// The receivers of events in the outbox.
    receivers: HashSet<(String, String)>,
    /// For each machine, when its newest definition was started, and the limit that it has.
    definitions: BTreeMap<String, (i64, Option<String>)>,
}

impl Routes {
    pub(super) fn new(partitions: u32) -> Routes {
        Routes { partitions, homes: HashMap::new(), children: Vec::new(), receivers: HashSet::new(), definitions: BTreeMap::new() }
    }

    /// Finds the destination of a row. An instance comes before all rows that belong to it.
    pub(super) fn route(&mut self, table: usize, row: Vec<Field>) -> Result<Routed, Misfit> {
        let name = transfer::name(table);
        if name != "machines" {
            self.check_definitions().map_err(Misfit::Error)?;
        }
        let to = match name {
            "machines" => {
                self.define(table, &row);
                Destination::Everywhere
            }
            "limits" | "limit_values" => Destination::Nowhere,
            "schedules" => self.of_key(text_of(table, &row, "name")),
            "instances" => Destination::Partition(self.settle(table, &row)?),
            "outbox" => return Ok(self.route_event(table, row)),
            "partition_outbox" => return self.route_event_to_partition(table, row).map_err(Misfit::Error),
            "child_events" => self.home(id_of(table, &row, "parent")),
            _ => self.home(id_of(table, &row, "instance_id")),
        };
        Ok(Routed { table, row, to })
    }

    /// Checks what only the end of an export tells.
    pub(super) fn end(&mut self) -> Result<(), Misfit> {
        self.check_definitions().map_err(Misfit::Error)?;
        std::mem::take(&mut self.children).into_iter().try_for_each(|child| self.check_family(child).map(drop))
    }

    /// The partition of an instance, which the rows that belong to it follow.
    fn settle(&mut self, table: usize, row: &[Field]) -> Result<u32, Misfit> {
        let [machine, key] = ["machine", "key"].map(|column| text_of(table, row, column).unwrap_or_default());
        if let Some(limit) = text_of(table, row, "waits_for").or(text_of(table, row, "runs_under")) {
            let says = format!("the call of `{machine}` `{}` is under the limit \"{}\"", key.escape_debug(), limit.escape_debug());
            return Err(Misfit::Error(no_limits(&says)));
        }
        let partition = partition_of(key, self.partitions);
        let number = u16::try_from(partition).expect("there are at most 1024 partitions");
        self.homes.extend(id_of(table, row, "instance_id").map(|id| (id, number)));
        if let Some(parent) = id_of(table, row, "parent") {
            let child = Child { machine: machine.to_owned(), key: key.to_owned(), partition, parent };
            if let Some(child) = self.check_family(child)? {
                self.children.push(child);
            }
        }
        Ok(partition)
    }

    /// Returns the child if its parent was not read yet.
    fn check_family(&self, child: Child) -> Result<Option<Child>, Misfit> {
        match self.homes.get(&child.parent).copied().map(u32::from) {
            None => Ok(Some(child)),
            Some(partition) if partition == child.partition => Ok(None),
            Some(partition) => Err(Misfit::Apart(child, partition)),
        }
    }

    /// An event that waits because the inbox of its receiver is full. If the sender belongs to another partition, it waits in the outbox of that
    /// partition, before those that the sender sends later.
    fn route_event(&mut self, table: usize, mut row: Vec<Field>) -> Routed {
        let receiver = ["machine", "key"].map(|column| text_of(table, &row, column).unwrap_or_default().to_owned());
        let there = partition_of(&receiver[1], self.partitions);
        let created_at = field_of(table, &row, "created_at").cloned().unwrap_or(Field::Number(Some(0)));
        match self.home(id_of(table, &row, "sender")) {
            Destination::Partition(here) if here != there => {
                let elsewhere = number_of_table("partition_outbox");
                let value = |(column, _): (&str, _)| match column {
                    "partition" => Field::Number(Some(there.into())),
                    "deliver_at" => Field::Number(None),
                    "due_at" => created_at.clone(),
                    "tries" => Field::Number(Some(0)),
                    column => field_of(table, &row, column).cloned().expect("both outboxes have this column"),
                };
                let row = transfer::columns(elsewhere).into_iter().map(value).collect();
                Routed { table: elsewhere, row, to: Destination::Partition(here) }
            }
            _ => {
                // The first event of a line has the time of the next delivery, and no other has one.
                let due_at = &mut row[transfer::position(table, "due_at").expect("the outbox has this column")];
                let [machine, key] = receiver;
                match (self.receivers.insert((machine, key)), &due_at) {
                    (true, Field::Number(None)) => *due_at = created_at,
                    (true, _) => {}
                    (false, _) => *due_at = Field::Number(None),
                }
                Routed { table, row, to: Destination::Partition(there) }
            }
        }
    }

    /// An event that waits for another partition. It stays in the partition of its sender.
    fn route_event_to_partition(&self, table: usize, mut row: Vec<Field>) -> Result<Routed, Error> {
        let there = partition_of(text_of(table, &row, "key").unwrap_or_default(), self.partitions);
        let is_delayed = field_of(table, &row, "deliver_at").is_some_and(|at| *at != Field::Number(None));
        let here = match self.home(id_of(table, &row, "sender")) {
            Destination::Partition(here) if here == there && !is_delayed => return Err(waits_for_partition(table, &row)),
            Destination::Partition(here) => here,
            // A schedule sent it, or an instance that was deleted.
            _ => there,
        };
        row[transfer::position(table, "partition").expect("the outbox of a partition has this column")] = Field::Number(Some(there.into()));
        Ok(Routed { table, row, to: Destination::Partition(here) })
    }

    fn define(&mut self, table: usize, row: &[Field]) {
        let started_at = match field_of(table, row, "last_seen_at") {
            Some(Field::Number(Some(at))) => *at,
            _ => 0,
        };
        let definition = text_of(table, row, "definition").and_then(|text| serde_json::from_str::<Machine>(text).ok());
        let limit = definition.and_then(|machine| machine.verbs.into_iter().find_map(|verb| verb.limit));
        let name = text_of(table, row, "machine").unwrap_or_default().to_owned();
        let newest = self.definitions.entry(name).or_insert((started_at, None));
        if started_at >= newest.0 {
            *newest = (started_at, limit);
        }
    }

    /// Returns an error if the newest definition of a machine has a limit.
    fn check_definitions(&mut self) -> Result<(), Error> {
        for (machine, (_, limit)) in std::mem::take(&mut self.definitions) {
            if let Some(limit) = limit {
                return Err(no_limits(&format!("the machine `{machine}` has the limit \"{}\"", limit.escape_debug())));
            }
        }
        Ok(())
    }

    fn of_key(&self, key: Option<&str>) -> Destination {
        key.map_or(Destination::Unknown, |key| Destination::Partition(partition_of(key, self.partitions)))
    }

    fn home(&self, instance: Option<Uuid>) -> Destination {
        let home = instance.and_then(|id| self.homes.get(&id));
        home.map_or(Destination::Unknown, |number| Destination::Partition(u32::from(*number)))
    }
}

/// The error about an event that waits for another partition, and that cannot wait where it is imported.
pub(super) fn waits_for_partition(table: usize, row: &[Field]) -> Error {
    let [event, machine, key] = ["event", "machine", "key"].map(|column| text_of(table, row, column).unwrap_or_default().escape_debug());
    Error::input(format!(
        "the event `{event}` to `{machine}` `{key}` waits in the outbox of a partition, and here its sender and its receiver are in one \
         database; run the program until it has arrived, and export again"
    ))
}

fn no_limits(says: &str) -> Error {
    Error::input(format!(
        "{says}, and a program with limits cannot use a database with partitions, because what runs is counted within one database"
    ))
}

fn number_of_table(name: &str) -> usize {
    (0..TABLES).find(|table| transfer::name(*table) == name).expect("there is a table of this name")
}
