//! A database with all of its partitions, as operators use it: the merged reads are in the files that have those of one partition.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

use fsm_core::time::Timestamp;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};

use super::opening::Opening;
use super::{Admin, Definition, partitions};
use crate::error::Error;

/// The number of partitions that are opened at a time.
const AT_A_TIME: usize = 16;

/// A database with all of its partitions, a database without partitions, or one partition that was selected.
///
/// A read covers the partitions that can be reached. The failures of the others are kept until [`WholeDatabase::take_failures`].
pub struct WholeDatabase {
    /// The partitions that were opened, by number. There is at least one.
    opened: Vec<Admin>,
    machines: Vec<Definition>,
    /// The number of partitions that were to be opened.
    wanted: usize,
    failures: Mutex<BTreeMap<u32, Error>>,
}

/// A row of a list, with the number of its partition. `None` for a database without partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// The number of the partition.
    pub partition: Option<u32>,
    /// The row.
    pub row: T,
}

impl WholeDatabase {
    /// Opens the partition that is selected, or else all partitions, and reads their machines. A partition that cannot be opened is one of the
    /// failures, unless no other can.
    ///
    /// Returns the errors of [`Admin::open`].
    pub async fn open(opening: Opening) -> Result<WholeDatabase, Error> {
        let places = if opening.has_selected() { Vec::new() } else { partitions::list(&opening).await? };
        if places.is_empty() {
            return Ok(WholeDatabase::of(vec![Box::pin(Admin::open(opening)).await?], BTreeMap::new()));
        }
        let open = |listed: partitions::ListedPartition| {
            let (number, opening) = (listed.place.partition.number(), opening.clone().at_place(listed.place));
            // Boxed: the type of the whole future would be too deep for the compiler.
            Box::pin(async move { (number, Admin::open(opening).await) })
        };
        let results: Vec<_> = Box::pin(stream::iter(places.into_iter().map(open)).buffered(AT_A_TIME).collect()).await;
        let (mut opened, mut failures) = (Vec::new(), BTreeMap::new());
        for (number, result) in results {
            match result {
                Ok(admin) => opened.push(admin),
                Err(error) if error.is_database() => drop(failures.insert(number, error)),
                Err(error) => return Err(error),
            }
        }
        match failures.pop_first() {
            Some((_, error)) if opened.is_empty() => Err(error),
            first => Ok(WholeDatabase::of(opened, failures.into_iter().chain(first).collect())),
        }
    }

    fn of(opened: Vec<Admin>, failures: BTreeMap<u32, Error>) -> WholeDatabase {
        let wanted = opened.len() + failures.len();
        WholeDatabase { machines: merged(&opened), wanted, opened, failures: Mutex::new(failures) }
    }

    /// Every machine that was ever started on a partition that was opened, by name.
    pub fn machines(&self) -> &[Definition] {
        &self.machines
    }

    /// The machine of this name. The text of an `is_not_found` error lists the known machines.
    pub fn machine(&self, name: &str) -> Result<&Definition, Error> {
        Definition::find(&self.machines, name, &self.place())
    }

    /// The machine of this name, or all machines without a name.
    pub fn selected(&self, machine: Option<&str>) -> Result<Vec<&Definition>, Error> {
        match machine {
            Some(name) => Ok(vec![self.machine(name)?]),
            None => Ok(self.machines.iter().collect()),
        }
    }

    /// The name of the database as it appears in messages, without the password. For several partitions, that of the first one.
    pub fn place(&self) -> String {
        self.opened[0].place()
    }

    /// The current time of the database's clock.
    pub fn now(&self) -> Timestamp {
        self.opened[0].now()
    }

    /// The number of partitions, also of those that could not be opened; 1 without partitions, or if one was selected.
    pub fn number(&self) -> usize {
        self.wanted
    }

    /// The partitions that were opened, by number.
    pub fn opened(&self) -> &[Admin] {
        &self.opened
    }

    /// The opened partition with this number; the only database without a number.
    ///
    /// # Panics
    ///
    /// If it was not opened. A row that was read is of a partition that was.
    pub fn partition(&self, number: Option<u32>) -> &Admin {
        self.opened.iter().find(|admin| number_of(admin) == number).expect("a row is of a partition that was opened")
    }

    /// The partitions that could not be opened or read, by number, each with its error. The next reads try again those that are open.
    pub fn take_failures(&self) -> BTreeMap<u32, Error> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the error of a partition that could not be opened or read.
    pub fn check_complete(&self) -> Result<(), Error> {
        self.take_failures().pop_first().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Reads each partition at the same time. One that cannot be read is one of the failures, unless the database has no partitions or no other
    /// can.
    pub(super) async fn read<T>(&self, read: impl AsyncFn(&Admin) -> Result<T, Error>) -> Result<Vec<Located<T>>, Error> {
        let failed: Vec<u32> = self.failures.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        let there = self.opened.iter().filter(|admin| number_of(admin).is_none_or(|number| !failed.contains(&number)));
        let read = &read;
        // Boxed for the same reason as in `open`.
        let results = join_all(there.map(|admin| Box::pin(async move { (number_of(admin), read(admin).await) }))).await;
        let (mut rows, mut last) = (Vec::with_capacity(results.len()), None);
        for (partition, result) in results {
            match (partition, result) {
                (partition, Ok(row)) => rows.push(Located { partition, row }),
                (Some(number), Err(error)) if error.is_database() => {
                    last = Some(number);
                    self.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(number, error);
                }
                (_, Err(error)) => return Err(error),
            }
        }
        match last.filter(|_| rows.is_empty()).and_then(|number| self.take_failures().remove(&number)) {
            Some(error) => Err(error),
            None => Ok(rows),
        }
    }
}

/// The rows of all partitions, each with the number of its partition.
pub(super) fn flat<T>(each: Vec<Located<Vec<T>>>) -> Vec<Located<T>> {
    let of_one = |Located { partition, row: rows }: Located<Vec<T>>| rows.into_iter().map(move |row| Located { partition, row });
    each.into_iter().flat_map(of_one).collect()
}

/// The number of the partition; `None` for a database without partitions.
fn number_of(admin: &Admin) -> Option<u32> {
    admin.partition().map(|partition| partition.number())
}

/// The machines of all partitions, by name. Of several definitions, the one that was started last counts.
fn merged(opened: &[Admin]) -> Vec<Definition> {
    let mut all: BTreeMap<&str, Definition> = BTreeMap::new();
    for known in opened.iter().flat_map(|admin| admin.machines()) {
        match all.entry(&known.machine.name) {
            Entry::Vacant(free) => drop(free.insert(known.clone())),
            Entry::Occupied(mut there) => {
                let (one, other) = (there.get().clone(), known.clone());
                let (newer, older) = if other.last_seen_at > one.last_seen_at { (other, one) } else { (one, other) };
                let others = older.states.into_iter().filter(|state| !newer.states.contains(state)).collect::<Vec<_>>();
                there.insert(Definition {
                    first_seen_at: newer.first_seen_at.min(older.first_seen_at),
                    definitions: newer.definitions.max(older.definitions),
                    states: newer.states.into_iter().chain(others).collect(),
                    ..newer
                });
            }
        }
    }
    all.into_values().collect()
}
