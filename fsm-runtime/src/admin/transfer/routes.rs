//! The partition of each row of an export, for an import into a database with partitions.

use std::collections::{HashMap, HashSet};

use fsm_core::partition::partition_of;
use fsm_store::transfer::{self, Field, TABLES};
use uuid::Uuid;

use super::elsewhere::{is_started_elsewhere, set_partition_of_child, set_partition_of_parent};
use super::lines::{field_of, id_of, text_of};
use crate::error::Error;

/// The destination of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// The partition with this number.
    Partition(u32),
    /// All partitions.
    Everywhere,
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
}

impl Routes {
    pub(super) fn new(partitions: u32) -> Routes {
        Routes { partitions, homes: HashMap::new(), children: Vec::new(), receivers: HashSet::new() }
    }

    /// Finds the destination of a row. An instance comes before all rows that belong to it.
    pub(super) fn route(&mut self, table: usize, mut row: Vec<Field>) -> Result<Routed, Misfit> {
        let to = match transfer::name(table) {
            "machines" | "limits" => Destination::Everywhere,
            // The time of the next start counts in the home of the value.
            "limit_values" => self.of_key(text_of(table, &row, "value")),
            "schedules" => self.of_key(text_of(table, &row, "name")),
            "instances" => {
                set_partition_of_parent(table, &mut row, self.partitions).map_err(Misfit::Error)?;
                Destination::Partition(self.settle(table, &row)?)
            }
            "remote_children" => {
                set_partition_of_child(table, &mut row, self.partitions);
                self.home(id_of(table, &row, "parent"))
            }
            "outbox" => return Ok(self.route_event(table, row)),
            "partition_outbox" => return self.route_event_to_partition(table, row).map_err(Misfit::Error),
            "child_events" => self.home(id_of(table, &row, "parent")),
            _ => self.home(id_of(table, &row, "instance_id")),
        };
        Ok(Routed { table, row, to })
    }

    /// Checks what only the end of an export tells.
    pub(super) fn end(&mut self) -> Result<(), Misfit> {
        std::mem::take(&mut self.children).into_iter().try_for_each(|child| self.check_family(child).map(drop))
    }

    /// The partition of an instance, which the rows that belong to it follow.
    fn settle(&mut self, table: usize, row: &[Field]) -> Result<u32, Misfit> {
        let [machine, key] = ["machine", "key"].map(|column| text_of(table, row, column).unwrap_or_default());
        let partition = partition_of(key, self.partitions);
        let number = u16::try_from(partition).expect("there are at most 1024 partitions");
        self.homes.extend(id_of(table, row, "instance_id").map(|id| (id, number)));
        if let Some(parent) = id_of(table, row, "parent").filter(|_| !is_started_elsewhere(table, row)) {
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
                    "deliver_at" | "moment" => Field::Number(None),
                    "due_at" => created_at.clone(),
                    "tries" => Field::Number(Some(0)),
                    "notice" | "schedule" => Field::Text(None),
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
        let schedule = text_of(table, &row, "schedule").filter(|name| !name.is_empty());
        let sender = schedule.map_or_else(|| self.home(id_of(table, &row, "sender")), |name| self.of_key(Some(name)));
        let here = match sender {
            // It goes to the row of its schedule, which is told if the event is refused.
            Destination::Partition(here) if schedule.is_some() => here,
            Destination::Partition(here) if here == there && !is_delayed => return Err(waits_for_partition(table, &row)),
            Destination::Partition(here) => here,
            // An instance that was deleted sent it.
            _ => there,
        };
        row[transfer::position(table, "partition").expect("the outbox of a partition has this column")] = Field::Number(Some(there.into()));
        Ok(Routed { table, row, to: Destination::Partition(here) })
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

fn number_of_table(name: &str) -> usize {
    (0..TABLES).find(|table| transfer::name(*table) == name).expect("there is a table of this name")
}

#[cfg(test)]
mod tests {
    use fsm_store::transfer::Kind;

    use super::*;

    const PARTITIONS: u32 = 4;

    fn text(text: &str) -> Field {
        Field::Text(Some(text.to_owned()))
    }

    fn id(number: u128) -> Field {
        Field::Id(Some(Uuid::from_u128(number)))
    }

    /// A row of the table with these values, and nulls in all other columns.
    fn row(table: &str, values: &[(&str, Field)]) -> (usize, Vec<Field>) {
        let table = number_of_table(table);
        let null = |kind| match kind {
            Kind::Id => Field::Id(None),
            Kind::Number => Field::Number(None),
            Kind::Text => Field::Text(None),
            Kind::Bytes => Field::Bytes(None),
            Kind::Flag => Field::Flag(false),
        };
        let value = |(name, kind): (&str, Kind)| {
            values.iter().find(|(column, _)| *column == name).map_or_else(|| null(kind), |(_, value)| value.clone())
        };
        (table, transfer::columns(table).into_iter().map(value).collect())
    }

    fn routed(routes: &mut Routes, (table, row): (usize, Vec<Field>)) -> Routed {
        routes.route(table, row).unwrap_or_else(|misfit| panic!("{misfit:?}"))
    }

    /// Routes with one instance in each partition; the id of each is the number of its partition.
    fn with_one_in_each() -> (Routes, Vec<String>) {
        let (mut routes, key) = (Routes::new(PARTITIONS), |n: u32| format!("o-{n}"));
        let keys: Vec<_> =
            (0..PARTITIONS).map(|home| (0..).map(key).find(|key| partition_of(key, PARTITIONS) == home).expect("there is one")).collect();
        for (number, key) in (0..).zip(&keys) {
            let instance = row("instances", &[("instance_id", id(number)), ("machine", text("order")), ("key", text(key))]);
            let home = u32::try_from(number).expect("it is small");
            assert_eq!(routed(&mut routes, instance).to, Destination::Partition(home));
        }
        (routes, keys)
    }

    #[test]
    fn the_rows_of_each_table_have_a_destination() {
        let (mut routes, keys) = with_one_in_each();
        for table in 0..TABLES {
            let name = transfer::name(table);
            let values = [
                ("instance_id", id(2)),
                ("parent", id(2)),
                ("sender", id(2)),
                ("key", text(&keys[3])),
                ("name", text(&keys[2])),
                ("value", text(&keys[2])),
            ];
            // The parent of an instance is in the same partition, and here it is its own.
            let values = if name == "instances" { [("key", text(&keys[2]))].into_iter().chain(values).collect() } else { values.to_vec() };
            let expected = match name {
                "machines" | "limits" => Destination::Everywhere,
                _ => Destination::Partition(2),
            };
            assert_eq!(routed(&mut routes, row(name, &values)).to, expected, "{name}");
        }
        let stranger = row("timers", &[("instance_id", id(99))]);
        assert_eq!(routed(&mut routes, stranger).to, Destination::Unknown);
    }

    #[test]
    fn a_waiting_event_is_in_the_outbox_of_its_sender_and_the_first_of_a_line_has_a_time() {
        let (mut routes, keys) = with_one_in_each();
        let at = |us| Field::Number(Some(us));
        let event = |sender, created_at, due_at| {
            row(
                "outbox",
                &[
                    ("sender", id(sender)),
                    ("machine", text("order")),
                    ("key", text(&keys[1])),
                    ("created_at", at(created_at)),
                    ("due_at", due_at),
                ],
            )
        };
        let time = |routed: &Routed| field_of(routed.table, &routed.row, "due_at").cloned();
        let elsewhere = routed(&mut routes, event(0, 5, at(50)));
        assert_eq!((transfer::name(elsewhere.table), elsewhere.to), ("partition_outbox", Destination::Partition(0)));
        assert_eq!((field_of(elsewhere.table, &elsewhere.row, "partition"), time(&elsewhere)), (Some(&at(1)), Some(at(5))));
        let first = routed(&mut routes, event(1, 6, Field::Number(None)));
        assert_eq!((transfer::name(first.table), first.to, time(&first)), ("outbox", Destination::Partition(1), Some(at(6))));
        let second = routed(&mut routes, event(1, 7, Field::Number(None)));
        assert_eq!((second.to, time(&second)), (Destination::Partition(1), Some(Field::Number(None))));
    }

    #[test]
    fn an_event_between_partitions_goes_to_the_new_number_and_stays_with_its_sender() {
        let (mut routes, keys) = with_one_in_each();
        let event = |sender, key: &str, deliver_at| {
            let values = [
                ("partition", Field::Number(Some(9))),
                ("sender", id(sender)),
                ("machine", text("order")),
                ("key", text(key)),
                ("deliver_at", deliver_at),
            ];
            row("partition_outbox", &values)
        };
        let (now, later) = (Field::Number(None), Field::Number(Some(7)));
        // The last sender was deleted.
        for (sender, to) in [(0, 0), (3, 3), (u128::MAX, 1)] {
            let routed = routed(&mut routes, event(sender, &keys[1], now.clone()));
            let there = field_of(routed.table, &routed.row, "partition");
            assert_eq!((routed.to, there), (Destination::Partition(to), Some(&Field::Number(Some(1)))), "{sender}");
        }
        assert_eq!(routed(&mut routes, event(1, &keys[1], later)).to, Destination::Partition(1));
        for home in [1, 2] {
            let (table, mut of_schedule) = event(0, &keys[1], now.clone());
            of_schedule[transfer::position(table, "schedule").expect("it is a column")] = text(&keys[home]);
            assert_eq!(routed(&mut routes, (table, of_schedule)).to, Destination::Partition(u32::try_from(home).expect("it is small")));
        }
        let (table, together) = event(1, &keys[1], now);
        assert!(matches!(routes.route(table, together), Err(Misfit::Error(error)) if error.is_input()));
    }
}
