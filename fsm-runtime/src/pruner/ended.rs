//! Deletes ended instances: several small ones in one step, and each large one in as many steps as it needs.

use std::collections::HashSet;

use fsm_core::ids::{CallId, InstanceId};
use fsm_store::error::StoreError;
use fsm_store::prune::{self, Ended, OldCall};
use uuid::Uuid;

use super::{IN_VAIN, Pruner, StepSize};

/// The number of ended instances that one statement reads.
const READ: u32 = 200;
/// The number of instances whose calls one statement reads, and the maximum number of calls of each.
const TOGETHER: usize = 50;
const FEW_CALLS: u32 = 64;

/// An instance whose rows are known and fit into one step.
struct Small {
    ended: Ended,
    calls: Vec<OldCall>,
    rows: u64,
}

/// The result of a step.
#[derive(Default)]
struct Taken {
    /// The number of deleted instances.
    count: usize,
    /// Instances with calls outside the chain, whose number of rows is unknown.
    long: Vec<Ended>,
}

impl Pruner<'_> {
    /// Deletes ended instances of `machine` after `after`, until several reads in a row find none to delete. After the last instance, the
    /// next run starts from the beginning. Returns the number of deleted instances.
    pub(super) async fn prune_ended(self, machine: &str, after: &mut InstanceId, step_size: &mut StepSize) -> Result<usize, StoreError> {
        let (mut pruned, mut in_vain) = (0, 0);
        while in_vain < IN_VAIN {
            let found = {
                let mut reader = self.store.reader().await?;
                prune::ended(&mut reader.conn(), machine, self.cutoff, *after, (READ, step_size.rows())).await?
            };
            let over: Vec<_> = found.iter().filter(|ended| ended.is_over).cloned().collect();
            let count = self.prune_all(&over, step_size).await?;
            pruned += count;
            in_vain = if count > 0 { 0 } else { in_vain + 1 };
            match found.last() {
                Some(last) if found.len() == READ as usize => *after = last.instance,
                _ => {
                    *after = InstanceId(Uuid::nil());
                    break;
                }
            }
        }
        Ok(pruned)
    }

    async fn prune_all(self, over: &[Ended], step_size: &mut StepSize) -> Result<usize, StoreError> {
        let mut pruned = 0;
        for some in over.chunks(TOGETHER) {
            let (small, mut long) = self.sized(some, step_size).await?;
            let mut small = small.into_iter().peekable();
            while small.peek().is_some() {
                let (mut group, mut rows) = (Vec::new(), 0);
                while let Some(next) = small.next_if(|next| group.is_empty() || rows + next.rows <= u64::from(step_size.rows())) {
                    rows += next.rows;
                    group.push(next);
                }
                let taken = self.prune_group(&group, step_size).await?;
                pruned += taken.count;
                long.extend(taken.long);
            }
            for one in long {
                pruned +=
                    usize::from(self.survived(one.instance, self.prune_long(one.instance, one.newest, step_size).await)?.unwrap_or(false));
            }
        }
        Ok(pruned)
    }

    /// Splits the instances into those that one step can delete with all their rows, and the others.
    async fn sized(self, some: &[Ended], step_size: &StepSize) -> Result<(Vec<Small>, Vec<Ended>), StoreError> {
        let newest: Vec<_> = some.iter().filter_map(|ended| ended.newest).collect();
        let mut calls = {
            let mut reader = self.store.engine_reader().await?;
            prune::calls_back(&mut reader.conn(), &newest, FEW_CALLS).await?
        };
        let (mut small, mut long) = (Vec::new(), Vec::new());
        for ended in some {
            let calls = ended.newest.and_then(|newest| calls.remove(&newest)).unwrap_or_default();
            // The count includes the instance's own row.
            let rows = 1 + ended.rows + calls.iter().map(OldCall::rows).sum::<u64>();
            if calls.len() < FEW_CALLS as usize && rows <= u64::from(step_size.rows()) {
                small.push(Small { ended: ended.clone(), calls, rows });
            } else {
                long.push(ended.clone());
            }
        }
        Ok((small, long))
    }

    /// Deletes these instances in one step. If that fails, each is deleted on its own, so that one that cannot be deleted does not affect
    /// the others.
    async fn prune_group(self, group: &[Small], step_size: &mut StepSize) -> Result<Taken, StoreError> {
        match self.prune_together(group, step_size).await {
            Err(error) if !error.is_transient() || error.is_locked() => {
                let mut all = Taken::default();
                for one in group {
                    let done = self.prune_together(std::slice::from_ref(one), step_size).await;
                    let Some(taken) = self.survived(one.ended.instance, done)? else { continue };
                    all.count += taken.count;
                    all.long.extend(taken.long);
                }
                Ok(all)
            }
            done => done,
        }
    }

    async fn prune_together(self, group: &[Small], step_size: &mut StepSize) -> Result<Taken, StoreError> {
        let ids: Vec<_> = group.iter().map(|small| small.ended.instance).collect();
        let taken = self
            .step(step_size, async |conn| {
                let over = prune::still_over(conn, &ids, self.cutoff).await?;
                let group: Vec<_> = group.iter().filter(|small| over.contains(&small.ended.instance)).collect();
                // An operator's retry can only have begun an attempt after the first one.
                let retried =
                    group.iter().flat_map(|small| &small.calls).filter(|call| call.last > 1).map(|call| call.call).collect::<Vec<_>>();
                let caught: HashSet<_> = prune::calls_beside(conn, &retried).await?.into_iter().map(|(call, _)| call).collect();
                let (long, small): (Vec<&Small>, Vec<_>) =
                    group.into_iter().partition(|small| small.calls.iter().any(|call| caught.contains(&call.call)));
                let calls: Vec<CallId> = small.iter().flat_map(|small| &small.calls).map(|call| call.call).collect();
                let whole: Vec<_> = small.iter().map(|small| small.ended.instance).collect();
                prune::delete_calls(conn, &calls).await?;
                prune::delete(conn, &whole).await?;
                Ok(Taken { count: whole.len(), long: long.into_iter().map(|small| small.ended.clone()).collect() })
            })
            .await?;
        tracing::debug!(instances = taken.count, "deleted what ended before the retention");
        Ok(taken)
    }

    /// Logs an error that concerns one instance only and returns `None`, so that the run continues. Errors that concern the whole database
    /// are returned.
    fn survived<T>(self, instance: InstanceId, done: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if !error.is_transient() || error.is_locked() => {
                tracing::warn!(%instance, %error, "an instance that ended before the retention could not be deleted and is tried again");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
