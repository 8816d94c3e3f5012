//! The reads of an operator in all partitions, merged as if there were one. The limit of a list is for all partitions together, and a limit on rows
//! examined or counted is for each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Status;
use fsm_store::outbox::FullInbox;
use fsm_store::overview::{Coming, Overdue, RejectedEvent, Times};
use fsm_store::pages::{After, PageFilter, Unreadable};
use fsm_store::workers::Worker;

use super::Admin;
use super::look::Listed;
use super::whole::{Located, WholeDatabase, flat};
use crate::error::Error;
use crate::handle::instance_view::InstanceView;
use crate::partition_pages::{self, PartitionPage};

/// A page of instances of all partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct WholePage {
    /// The instances.
    pub instances: Vec<Located<InstanceView>>,
    /// The instances of the page that have a value which cannot be decoded.
    pub unreadable: Vec<Located<Unreadable>>,
    /// The instance after which the next page begins, or `None` on the last page.
    pub next: Option<After>,
    /// True if the page ended at the limit on rows examined, and not because it is full.
    pub was_cut: bool,
}

impl WholeDatabase {
    /// A page of the machine's instances that match the filter. Returns an `is_input` error if the machine lacks a search field of the filter.
    pub async fn page(&self, machine: &str, filter: &PageFilter) -> Result<WholePage, Error> {
        self.machine(machine)?;
        let each = self.read(async |admin| match admin.machine(machine) {
            Ok(_) => Ok(Some(admin.page(machine, filter).await?)),
            Err(_) => Ok(None),
        });
        let mut pages = Vec::new();
        for Located { partition, row } in each.await? {
            let Some(Listed { instances, unreadable, next, was_cut }) = row else { continue };
            let instance = |row: InstanceView| (filter.position(row.row.id, &row.row.key), Ok(Located { partition, row }));
            let other = |(position, row)| (position, Err(Located { partition, row }));
            let items = instances.into_iter().map(instance).chain(unreadable.into_iter().map(other)).collect();
            pages.push(PartitionPage { items, next, was_cut });
        }
        let PartitionPage { items, next, was_cut } = partition_pages::merged(pages, filter);
        let (mut instances, mut unreadable) = (Vec::with_capacity(items.len()), Vec::new());
        for (_, one) in items {
            match one {
                Ok(instance) => instances.push(instance),
                Err(one) => unreadable.push(one),
            }
        }
        Ok(WholePage { instances, unreadable, next, was_cut })
    }

    /// The id of an instance. Returns an `is_not_found` error if there is none.
    pub async fn instance_id(&self, machine: &str, key: &str) -> Result<InstanceId, Error> {
        let read = async |admin: &Admin| match admin.instance_id(machine, key).await {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        };
        let found = self.read(read).await?.into_iter().find_map(|located| located.row);
        found.ok_or_else(|| Error::not_found(machine, key))
    }

    /// The attempts and timers of a machine that are due next, in order, at most `limit`.
    pub async fn to_come(&self, machine: &str, limit: u32) -> Result<Vec<Located<Coming>>, Error> {
        let mut coming = flat(self.read(async |admin| admin.to_come(machine, limit).await).await?);
        coming.sort_by_key(|located| located.row.at);
        coming.truncate(limit as usize);
        Ok(coming)
    }

    /// The machine's attempts that are due and not claimed, counted up to `most` in each partition.
    pub async fn overdue(&self, machine: &str, most: u32) -> Result<Overdue, Error> {
        let each = self.read(async |admin| admin.overdue(machine, most).await).await?;
        let attempts = each.iter().map(|located| located.row.attempts).sum();
        Ok(Overdue { attempts, since: each.iter().filter_map(|located| located.row.since).min() })
    }

    /// The attempts of the newest calls of all machines, newest first, at most `limit`.
    pub async fn newest(&self, limit: u32) -> Result<Vec<Times>, Error> {
        let mut newest: Vec<_> =
            self.read(async |admin| admin.newest(limit).await).await?.into_iter().flat_map(|located| located.row).collect();
        if self.opened().len() > 1 {
            newest.sort_by_key(|times| Reverse(times.created_at));
            newest.truncate(limit as usize);
        }
        Ok(newest)
    }

    /// The sessions of all running worker processes, and those of dead ones that have not been removed yet. A process has one in each partition.
    pub async fn workers(&self) -> Result<Vec<Located<Worker>>, Error> {
        Ok(flat(self.read(async |admin| admin.workers().await).await?))
    }

    /// The number of instances of a machine, and the number in error, each counted up to `most` in each partition.
    pub async fn sizes(&self, machine: &str, most: u32) -> Result<(u64, u64), Error> {
        let each = self.read(async |admin| admin.sizes(machine, most).await).await?;
        Ok(each.iter().fold((0, 0), |(all, in_error), located| (all + located.row.0, in_error + located.row.1)))
    }

    /// The number of instances of a machine by status and state. Reads all of them.
    pub async fn counts(&self, machine: &str) -> Result<Vec<(Status, Option<String>, u64)>, Error> {
        Ok(added(self.read(async |admin| admin.counts(machine).await).await?.into_iter().flat_map(|located| located.row)))
    }

    /// The numbers of a machine's newest instances by status and state, at most `most` for each status in each partition, and the statuses that
    /// have more. Ended instances are counted together; `Completed` in the second list stands for all of them.
    pub async fn newest_counts(&self, machine: &str, most: u32) -> Result<(Vec<(Status, Option<String>, u64)>, Vec<Status>), Error> {
        let each = self.read(async |admin| admin.newest_counts(machine, most).await).await?;
        let (counts, more): (Vec<_>, Vec<_>) = each.into_iter().map(|located| located.row).unzip();
        let mut more = more.concat();
        more.sort();
        more.dedup();
        Ok((added(counts.into_iter().flatten()), more))
    }

    /// The instances of a machine for whose inbox events wait in the outbox, those that are delivered next first, at most `limit`.
    pub async fn full_inboxes(&self, machine: &str, limit: u32) -> Result<Vec<Located<FullInbox>>, Error> {
        let mut full = flat(self.read(async |admin| admin.full_inboxes(machine, limit).await).await?);
        full.sort_by_key(|located| located.row.next_at);
        full.truncate(limit as usize);
        Ok(full)
    }

    /// The events that instances of a machine rejected, newest first, at most `limit`, of calls made before `before`. Examines the newest 20,000 of
    /// all machines in each partition.
    pub async fn rejected(&self, machine: &str, before: Option<CallId>, limit: u32) -> Result<Vec<RejectedEvent>, Error> {
        let each = self.read(async |admin| admin.rejected(machine, before, limit).await).await?;
        let mut rejected: Vec<_> = each.into_iter().flat_map(|located| located.row).collect();
        rejected.sort_by_key(|event| Reverse(event.call));
        rejected.truncate(limit as usize);
        Ok(rejected)
    }
}

/// The sums of the numbers with the same status and state.
fn added(all: impl Iterator<Item = (Status, Option<String>, u64)>) -> Vec<(Status, Option<String>, u64)> {
    let mut sums: BTreeMap<(Status, Option<String>), u64> = BTreeMap::new();
    all.for_each(|(status, state, number)| *sums.entry((status, state)).or_default() += number);
    sums.into_iter().map(|((status, state), number)| (status, state, number)).collect()
}
