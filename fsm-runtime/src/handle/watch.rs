//! A stream of an instance's changes: this process's commits at once, and a look now and then for those of others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fsm_core::instance::Instance as InstanceRow;
use futures_util::stream::{Stream, StreamExt, unfold};
use tokio::time::Instant;

use super::Handle;
use super::seen::{Seen, with_calls};
use super::view::Instance;
use crate::committer::queue::Whose;
use crate::encode;
use crate::error::{Error, Kind};
use crate::registry::Machine;
use crate::store::error::StoreError;
use crate::store::{lock, view as rows};
use crate::watchers::{Moved, Watch};

/// The pauses between two looks at the database: doubling from the one to the other, and short again after a change.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The changes of one instance: a `Stream`, which also has [`next`](Watching::next) for those who import no trait.
#[must_use = "nothing is seen until it is polled"]
pub struct Watching<M: Machine> {
    seen: Pin<Box<dyn Stream<Item = Result<Instance<M>, Error>> + Send>>,
}

struct Eye<M: Machine> {
    handle: Handle<M>,
    key: String,
    watch: Watch,
    last: Option<InstanceRow>,
    pause: Duration,
    next_look: Instant,
    is_over: bool,
}

impl<M: Machine> Watching<M> {
    pub(super) fn new(handle: Handle<M>, key: &str) -> Watching<M> {
        // A place among the waiting from now on: nothing that moves between this and the first look goes unseen.
        let watch = handle.engine.watchers.watch(Whose::new(M::NAME, key));
        let key = key.to_owned();
        let eye = Eye { handle, key, watch, last: None, pause: LOOKS.0, next_look: Instant::now(), is_over: false };
        Watching { seen: Box::pin(unfold(eye, Eye::next).fuse()) }
    }

    /// The instance as it is, then as it is after the next change that is seen; `None` after it has ended.
    ///
    /// An error of the database does not end the watch: it looks again the next time. `is_not_found` does.
    pub async fn next(&mut self) -> Option<Result<Instance<M>, Error>> {
        self.seen.next().await
    }
}

impl<M: Machine> Eye<M> {
    async fn next(mut self) -> Option<(Result<Instance<M>, Error>, Self)> {
        while !self.is_over {
            match self.change().await {
                Ok(Some(instance)) => return Some((Ok(instance), self)),
                Ok(None) => {}
                Err(error) => {
                    let is_closed = matches!(error.kind(), Kind::Store(store) if matches!(**store, StoreError::Closed));
                    self.is_over = is_closed || !error.is_database();
                    return Some((Err(error), self));
                }
            }
        }
        None
    }

    /// Waits for a commit of this process, or until it is time to look; `None` when that shows nothing new.
    async fn change(&mut self) -> Result<Option<Instance<M>>, Error> {
        match tokio::time::timeout_at(self.next_look, self.watch.moved()).await {
            Ok(Some(moved)) => self.told(&moved).await,
            _ => self.look().await,
        }
    }

    async fn look(&mut self) -> Result<Option<Instance<M>>, Error> {
        encode::check_key(&self.key)?;
        self.next_look = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LOOKS.1);
        let mut reader = self.handle.engine.store.reader().await?;
        let Some(row) = rows::find(&mut reader.conn(), M::NAME, &self.key).await? else {
            // One that was there and is gone ended long ago, and was pruned.
            self.is_over = true;
            return if self.last.is_some() { Ok(None) } else { Err(Error::not_found(M::NAME, &self.key)) };
        };
        // What this process did while it looked comes in the order of its commits, each with what it knows.
        if let Some(moved) = self.watch.moved_already() {
            drop(reader);
            return self.told(&moved).await;
        }
        if !self.is_news(&row) {
            return Ok(None);
        }
        let discretion = &self.handle.engine.discretion;
        let seen = with_calls(&mut reader.conn(), vec![row.clone()], discretion).await;
        let seen = seen.and_then(|mut seen| seen.pop().map(|seen| Instance::of(seen, discretion)).transpose());
        self.keep(row);
        seen
    }

    async fn told(&mut self, moved: &Arc<Moved>) -> Result<Option<Instance<M>>, Error> {
        let Moved { instance, live } = &**moved;
        if !self.is_news(instance) {
            return Ok(None);
        }
        if instance.is_open && live.is_none() {
            self.next_look = Instant::now();
            return Ok(None);
        }
        let before = match live {
            Some(live) if live.number > 1 => {
                let mut reader = self.handle.engine.store.reader().await?;
                lock::attempts(&mut reader.conn(), &[(live.call, live.number - 1)]).await?.pop()
            }
            _ => None,
        };
        let discretion = &self.handle.engine.discretion;
        let seen = Instance::of(Seen::new(instance.clone(), live.as_ref(), before.as_ref(), discretion), discretion);
        self.keep(instance.clone());
        seen.map(Some)
    }

    /// Whether the row is another than the last one, and not an older one that was told late.
    fn is_news(&self, row: &InstanceRow) -> bool {
        self.last
            .as_ref()
            .is_none_or(|last| row.id != last.id || (row != last && row.version >= last.version && row.updated_at >= last.updated_at))
    }

    fn keep(&mut self, row: InstanceRow) {
        self.is_over = row.status.is_ended();
        self.last = Some(row);
        self.pause = LOOKS.0;
        self.next_look = Instant::now() + self.pause;
    }
}

impl<M: Machine> Stream for Watching<M> {
    type Item = Result<Instance<M>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.seen.as_mut().poll_next(cx)
    }
}
