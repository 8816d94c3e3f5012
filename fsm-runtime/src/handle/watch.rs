//! A stream of an instance's changes: commits of this process appear at once, and polling finds those of other processes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::instance::Instance as InstanceRow;
use fsm_store::error::StoreError;
use fsm_store::view as rows;
use futures_util::stream::{Stream, StreamExt, unfold};
use tokio::time::Instant;

use super::instance_view::{InstanceView, completed, with_calls};
use super::view::Instance;
use crate::encode;
use crate::engine::Engine;
use crate::engines::ClientGuard;
use crate::error::{Error, Kind};
use crate::registry::Machine;
use crate::watchers::{CommittedInstance, Watch};

/// The shortest and longest wait between two polls. The wait doubles after each poll and is short again after a change.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The changes of one instance, as a `Stream`. [`next`](WatchStream::next) works without importing the trait.
#[must_use = "nothing is seen until it is polled"]
pub struct WatchStream<M: Machine> {
    seen: Pin<Box<dyn Stream<Item = Result<Instance<M>, Error>> + Send>>,
}

/// The changes of one instance of any machine.
#[must_use = "nothing is seen until it is asked for"]
pub struct InstanceWatch {
    seen: Pin<Box<dyn Stream<Item = Result<InstanceView, Error>> + Send>>,
}

struct WatchState {
    engine: Arc<Engine>,
    _client_guard: Option<Arc<ClientGuard>>,
    machine: String,
    key: String,
    watch: Watch,
    last: Option<InstanceRow>,
    pause: Duration,
    next_look: Instant,
    is_over: bool,
}

impl<M: Machine> WatchStream<M> {
    pub(super) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>, key: &str) -> WatchStream<M> {
        let typed = Arc::clone(&engine);
        let seen = InstanceWatch::new(engine, client_guard, M::NAME, key).seen;
        let seen = seen.map(move |seen| seen.and_then(|seen| Instance::of(seen, &typed.data_protection)));
        // An instance that cannot be read ends the stream, like one that does not exist.
        let seen = seen.scan(false, |is_over, seen| {
            let shown = if *is_over { None } else { Some(seen) };
            *is_over |= matches!(&shown, Some(Err(error)) if !error.is_database());
            std::future::ready(shown)
        });
        WatchStream { seen: Box::pin(seen.fuse()) }
    }

    /// The instance as it is at the first call, and after the next change at each further call; `None` after the instance has ended.
    ///
    /// `is_database` errors do not end the stream: the next call polls again. `is_not_found` ends it.
    pub async fn next(&mut self) -> Option<Result<Instance<M>, Error>> {
        self.seen.next().await
    }
}

impl InstanceWatch {
    pub(crate) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>, machine: &str, key: &str) -> InstanceWatch {
        // Registered before the first poll, so that no change between the two is missed.
        let watch = engine.watchers.watch(InstanceKey::new(machine, key));
        let (machine, key) = (machine.to_owned(), key.to_owned());
        let eye = WatchState {
            engine,
            _client_guard: client_guard,
            machine,
            key,
            watch,
            last: None,
            pause: LOOKS.0,
            next_look: Instant::now(),
            is_over: false,
        };
        InstanceWatch { seen: Box::pin(unfold(eye, WatchState::next).fuse()) }
    }

    /// The instance as it is at the first call, and after the next change at each further call; `None` after the instance has ended. Errors
    /// are those of [`WatchStream::next`].
    pub async fn next(&mut self) -> Option<Result<InstanceView, Error>> {
        self.seen.next().await
    }
}

impl WatchState {
    async fn next(mut self) -> Option<(Result<InstanceView, Error>, Self)> {
        while !self.is_over {
            match self.change().await {
                Ok(Some(instance)) => return Some((Ok(instance), self)),
                Ok(None) => {}
                Err(error) => {
                    let is_closed = matches!(error.cause(), Kind::Store(store) if matches!(**store, StoreError::Closed));
                    self.is_over = is_closed || !error.is_database();
                    return Some((Err(error), self));
                }
            }
        }
        None
    }

    /// Waits for a commit of this process or the time of the next poll. `None` if there is nothing new.
    async fn change(&mut self) -> Result<Option<InstanceView>, Error> {
        match tokio::time::timeout_at(self.next_look, self.watch.next()).await {
            Ok(committed) => self.view_of(committed).await,
            Err(_) => self.look().await,
        }
    }

    async fn look(&mut self) -> Result<Option<InstanceView>, Error> {
        encode::check_key(&self.key)?;
        self.next_look = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LOOKS.1);
        let mut reader = self.engine.store.reader().await?;
        let Some(row) = rows::find(&mut reader.conn(), &self.machine, &self.key).await? else {
            // If the instance was seen before and its row is gone, the instance ended earlier and the pruner deleted it.
            self.is_over = true;
            return if self.last.is_some() { Ok(None) } else { Err(Error::not_found(&self.machine, &self.key)) };
        };
        // Commits that this process made during the poll come first, in their order.
        if let Some(committed) = self.watch.try_next() {
            drop(reader);
            return self.view_of(committed).await;
        }
        if !self.is_newer(&row.instance) {
            return Ok(None);
        }
        let instance = row.instance.clone();
        let search = self.engine.catalog.search_fields(&self.machine);
        let seen = with_calls(&mut reader.conn(), vec![row], search, &self.engine.data_protection).await;
        self.keep(instance);
        // An instance whose open call cannot be decoded is shown after its next change.
        Ok(seen?.instances.pop())
    }

    async fn view_of(&mut self, CommittedInstance { instance, live }: CommittedInstance) -> Result<Option<InstanceView>, Error> {
        if !self.is_newer(&instance) {
            return Ok(None);
        }
        if instance.is_open && live.is_none() {
            self.next_look = Instant::now();
            return Ok(None);
        }
        let seen = completed(&self.engine, InstanceRow::clone(&instance), live.as_deref()).await?;
        self.keep(Arc::unwrap_or_clone(instance));
        Ok(Some(seen))
    }

    /// Returns true if the row differs from the last one and is not an older version that was reported late.
    fn is_newer(&self, row: &InstanceRow) -> bool {
        self.last.as_ref().is_none_or(|last| {
            row.id != last.id || (!is_same(row, last) && row.version >= last.version && row.updated_at >= last.updated_at)
        })
    }

    fn keep(&mut self, row: InstanceRow) {
        self.is_over = row.status.is_ended();
        self.last = Some(row);
        self.pause = LOOKS.0;
        self.next_look = Instant::now() + self.pause;
    }
}

/// Returns true if the two rows differ at most in the number of writes.
fn is_same(row: &InstanceRow, last: &InstanceRow) -> bool {
    *row == InstanceRow { row_version: row.row_version, ..last.clone() }
}

impl<M: Machine> Stream for WatchStream<M> {
    type Item = Result<Instance<M>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.seen.as_mut().poll_next(cx)
    }
}
