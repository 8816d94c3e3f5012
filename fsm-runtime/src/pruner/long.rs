//! Deletes an ended instance with many rows in several steps: its calls from the oldest on, and its own row last.
//!
//! After each step the instance looks like one whose old history was deleted: the chain of its remaining calls is unbroken, and its key is
//! taken. After a crash, the next run continues.

use std::collections::VecDeque;

use fsm_core::ids::{CallId, InstanceId};
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::prune::{self, OldCall};

use super::{Pruner, StepSize};

/// The number of calls that one read returns.
const PIECE: u32 = 256;

impl Pruner<'_> {
    /// Deletes an instance and all its rows. Returns `false` if it must not be deleted any more, or if another transaction has locked it.
    pub(super) async fn prune_long(
        self,
        instance: InstanceId,
        newest: Option<CallId>,
        step_size: &mut StepSize,
    ) -> Result<bool, StoreError> {
        let mut beside = Vec::new();
        // The newest call of each piece, from the newest piece to the oldest.
        let mut pieces = match newest {
            Some(newest) => self.pieces(newest).await?,
            None => Vec::new(),
        };
        while let Some(begins) = pieces.pop() {
            let Some(found) = self.prune_piece(instance, begins, PIECE, step_size).await? else { return Ok(false) };
            beside.extend(found);
        }
        // Calls of catch verbs. They make no transitions. If this process crashes, the next run finds them by their age.
        while let Some(caught) = beside.pop() {
            let Some(found) = self.prune_piece(instance, caught, 1, step_size).await? else { return Ok(false) };
            beside.extend(found.into_iter().filter(|call| *call != caught));
        }
        self.prune_rest(instance, step_size).await
    }

    /// The newest call of each piece of the chain, newest first.
    async fn pieces(self, newest: CallId) -> Result<Vec<CallId>, StoreError> {
        let mut pieces = vec![newest];
        loop {
            let last = *pieces.last().expect("there is at least the newest");
            let calls = self.back(last, PIECE).await?;
            match calls.last().and_then(|oldest| oldest.previous).filter(|_| calls.len() == PIECE as usize) {
                Some(previous) => pieces.push(previous),
                None => return Ok(pieces),
            }
        }
    }

    async fn back(self, call: CallId, most: u32) -> Result<Vec<OldCall>, StoreError> {
        let mut reader = self.store.engine_reader().await?;
        Ok(prune::calls_back(&mut reader.conn(), &[call], most).await?.remove(&call).unwrap_or_default())
    }

    /// Deletes `call` and its predecessors, at most `most` calls, oldest first. Returns calls outside the chain, or `None` if the instance
    /// must not be deleted any more.
    async fn prune_piece(
        self,
        instance: InstanceId,
        call: CallId,
        most: u32,
        step_size: &mut StepSize,
    ) -> Result<Option<Vec<CallId>>, StoreError> {
        let mut left: VecDeque<_> = self.back(call, most).await?.into_iter().rev().collect();
        let mut beside = Vec::new();
        while let Some(oldest) = left.front_mut() {
            let most = u64::from(step_size.rows());
            if oldest.rows() > most && !oldest.is_short() {
                match self.shorten(instance, oldest, step_size).await? {
                    Some(found) => beside.extend(found),
                    None => return Ok(None),
                }
                continue;
            }
            let (mut whole, mut rows) = (Vec::new(), 0);
            while left.front().is_some_and(|next| whole.is_empty() || rows + next.rows() <= most) {
                let next = left.pop_front().expect("it is there");
                rows += next.rows();
                whole.push(next.call);
            }
            match self.prune_calls(instance, &whole, step_size).await? {
                Some(found) => beside.extend(found),
                None => return Ok(None),
            }
        }
        Ok(Some(beside))
    }

    /// A step on a call with many rows. It deletes memoised effects first, and then the oldest attempts between the first and the last one.
    async fn shorten(self, instance: InstanceId, call: &mut OldCall, step_size: &mut StepSize) -> Result<Option<Vec<CallId>>, StoreError> {
        let limit = step_size.rows();
        let (is_once, last) = (call.once > 0, call.last);
        let id = call.call;
        let taken = self
            .step_on(instance, step_size, async |conn| {
                if is_once {
                    return Ok((prune::some_once(conn, id, limit).await?, Vec::new()));
                }
                let before = prune::between(conn, id, last, limit).await?;
                Ok((before.len() as u64, before))
            })
            .await?;
        let Some((count, before)) = taken else { return Ok(None) };
        if count < u64::from(limit) {
            if is_once { call.once = 0 } else { call.shortened() }
        }
        let mut beside: Vec<_> = before.into_iter().flatten().filter(|before| Some(*before) != call.previous).collect();
        beside.sort();
        beside.dedup();
        Ok(Some(beside))
    }

    /// A step that deletes whole calls, the oldest ones.
    async fn prune_calls(
        self,
        instance: InstanceId,
        calls: &[CallId],
        step_size: &mut StepSize,
    ) -> Result<Option<Vec<CallId>>, StoreError> {
        self.step_on(instance, step_size, async |conn| {
            let beside = prune::calls_beside(conn, calls).await?;
            let transitions = prune::transitions(conn, calls).await?;
            prune::delete_calls(conn, calls).await?;
            prune::pruned(conn, std::iter::once((instance, transitions))).await?;
            Ok(beside.into_iter().map(|(_, caught)| caught).collect())
        })
        .await
    }

    /// Deletes all other rows of the instance, and its own row last.
    async fn prune_rest(self, instance: InstanceId, step_size: &mut StepSize) -> Result<bool, StoreError> {
        loop {
            let limit = step_size.rows();
            let taken = self
                .step_on(instance, step_size, async |conn| {
                    let taken = prune::some_of(conn, instance, limit).await?;
                    let is_rest = taken < u64::from(limit);
                    if is_rest {
                        prune::delete(conn, &[instance]).await?;
                    }
                    Ok(is_rest)
                })
                .await?;
            match taken {
                Some(false) => {}
                Some(true) => {
                    tracing::debug!(%instance, "deleted an instance with many rows that ended before the retention");
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
    }

    /// A step under the lock of the instance. `None` if the instance must not be deleted any more, or if another transaction has locked it.
    async fn step_on<T>(
        self,
        instance: InstanceId,
        step_size: &mut StepSize,
        work: impl AsyncFnOnce(&mut Conn<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.step(step_size, async |conn| match prune::still_over(conn, &[instance], self.cutoff).await?.is_empty() {
            true => Ok(None),
            false => work(conn).await.map(Some),
        })
        .await
    }
}
