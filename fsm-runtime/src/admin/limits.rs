//! Limits for operators: their settings and their use, and changes at run time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use fsm_core::limit::{Limit, Rate};
use fsm_store::limits::{self, ShownLimit};

use super::Admin;
use super::whole::{WholeDatabase, flat};
use crate::error::{Error, ErrorKind};

/// The maximum count of the calls that run under a limit, and of those that wait for it.
pub const MOST_COUNTED: u32 = 10_000;

/// A change of a limit's setting. What is `None` stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// The maximum number of calls that run at once; `Some(None)` removes it.
    pub concurrency: Option<Option<u32>>,
    /// The maximum number of starts in a time; `Some(None)` removes the rate.
    pub rate: Option<Option<(u32, Duration)>>,
    /// The number of starts that may happen at the same time after a pause.
    pub burst: Option<u32>,
}

impl LimitChange {
    fn of(self, before: Limit) -> Limit {
        let concurrency = self.concurrency.unwrap_or(before.concurrency);
        let burst = self.burst.or(before.rate.map(|rate| rate.burst)).unwrap_or(1).max(1);
        let rate = match self.rate {
            Some(rate) => rate.map(|(starts, per)| Rate { starts, per, burst }),
            None => before.rate.map(|rate| Rate { burst, ..rate }),
        };
        Limit { concurrency, rate, by: before.by }
    }
}

impl Admin {
    /// All limits, in alphabetical order. The calls of each are counted up to [`MOST_COUNTED`].
    pub async fn limits(&self) -> Result<Vec<ShownLimit>, Error> {
        let now = self.now();
        self.engine.read(|| async { Ok(limits::shown(&mut self.engine.store.reader().await?.conn(), now, MOST_COUNTED).await?) }).await
    }

    async fn set_limit(&self, name: &str, limit: &Limit, actor: &str) -> Result<(), Error> {
        let mut tx = self.engine.store.begin().await?;
        let is_there = limits::change(&mut tx.conn(), name, limit, actor, self.now()).await?;
        tx.commit().await?;
        if !is_there {
            return Err(unknown(name, &[]));
        }
        // Another process finds it by polling if this fails.
        if let Err(error) = self.engine.store.notify().await {
            tracing::debug!(%error, "other processes were not told of the changed limit");
        }
        Ok(())
    }
}

impl WholeDatabase {
    /// All limits, in alphabetical order. The calls of each are counted up to [`MOST_COUNTED`] in each partition, and added. If partitions have
    /// different settings, the one that was changed last is shown.
    pub async fn limits(&self) -> Result<Vec<ShownLimit>, Error> {
        let mut all = BTreeMap::<String, ShownLimit>::new();
        for limit in flat(self.read(async |admin| admin.limits().await).await?).into_iter().map(|located| located.row) {
            match all.entry(limit.name.clone()) {
                Entry::Vacant(free) => drop(free.insert(limit)),
                Entry::Occupied(mut there) => {
                    let (running, waiting) = (there.get().running + limit.running, there.get().waiting + limit.waiting);
                    let newer = if limit.changed.1 > there.get().changed.1 { limit } else { there.get().clone() };
                    there.insert(ShownLimit { running, waiting, ..newer });
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Changes the setting of a limit in all partitions, in the name of `actor`. It applies to all processes from their next claim on, and until a
    /// process starts whose code declares another setting than the code before. Calls that run already continue.
    ///
    /// Errors: `is_not_found` if there is no such limit; the text lists those that exist. `is_database` if a partition cannot be reached: then some
    /// partitions may have the new setting, and the same change can be made again.
    pub async fn change_limit(&self, name: &str, change: LimitChange, actor: &str) -> Result<ShownLimit, Error> {
        let before = self.limit(name).await?;
        self.check_complete()?;
        let limit = change.of(before.limit);
        for admin in self.opened() {
            admin.set_limit(name, &limit, actor).await?;
        }
        tracing::info!(limit = name, actor, ?change, "an operator changed a limit");
        self.limit(name).await
    }

    async fn limit(&self, name: &str) -> Result<ShownLimit, Error> {
        let all = self.limits().await?;
        match all.iter().find(|limit| limit.name == name) {
            Some(limit) => Ok(limit.clone()),
            None => Err(unknown(name, &all)),
        }
    }
}

fn unknown(name: &str, all: &[ShownLimit]) -> Error {
    let names: Vec<_> = all.iter().map(|limit| format!("\"{}\"", limit.name)).collect();
    let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    Error::other(ErrorKind::NotFound, format!("the database has no limit \"{}\"; {has}", name.escape_debug()))
}
