//! The typed handle to the instances of one machine: send, read, wait, operate.

pub mod activity;
pub mod history;
pub mod instance_view;
pub mod operate;
pub(crate) mod pages;
pub mod send;
pub mod send_many;
pub mod settled;
pub mod view;
pub mod wait;
mod waiting;
pub mod watch;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use fsm_core::call::Attempt as AttemptRow;
use fsm_core::check::{listed, nearest};
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::decide::operate::Act;
use fsm_core::instance::Status;
use fsm_core::retry::Retry;
use fsm_store::conn::Conn;
use fsm_store::traces;
use fsm_store::view as rows;
use fsm_store::view::WithNewest;
use futures_util::future::try_join_all;
use serde::Serialize;

use crate::encode;
use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::engines::{ClientGuard, Engines};
use crate::error::Error;
use crate::registry::{EventFor, Machine};
use history::HistoryEntry;
use instance_view::calls_of;
use operate::{Bulk, OperateRequest};
use send::{SendInTransaction, SendRequest};
use send_many::{IntoSendItem, SendMany};
use settled::SettledRequest;
use view::{Attempt, Count, Filter, Instance, Page};
use wait::Wait;
use watch::WatchStream;

/// A typed handle to the instances of the machine `M`. Cheap to clone.
pub struct Handle<M> {
    engines: Engines,
    client_guard: Option<Arc<ClientGuard>>,
    machine: PhantomData<fn() -> M>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Handle { engines: self.engines.clone(), client_guard: self.client_guard.clone(), machine: PhantomData }
    }
}

impl<M: Machine> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle to \"{}\"", M::NAME)
    }
}

impl<M: Machine> Handle<M> {
    pub(crate) fn new(engines: Engines, client_guard: Option<Arc<ClientGuard>>) -> Handle<M> {
        Handle { engines, client_guard, machine: PhantomData }
    }

    /// Sends an event to the instance `key`. A start event creates the instance. The event is durable once this returns.
    ///
    /// Errors: `is_refused` if no state that is reachable after the queued events accepts the event; `is_busy` if the inbox is full, or if
    /// the instance is busy and the sender did not want to wait; `is_conflict` if another request used the same dedup id; `is_input` if the
    /// key or the payload is invalid or too long; `is_database` if the database was unavailable until the builder's patience ended. The
    /// text of that error says whether it is certain that nothing was written.
    pub fn send<E: EventFor<M>>(&self, key: impl AsRef<str>, event: E) -> SendRequest {
        let engine = self.engine_of(key.as_ref());
        let payload = encode::payload(&event, E::EVENT, engine.limits.payload);
        SendRequest::new(Arc::clone(engine), self.client_guard.clone(), M::NAME, key.as_ref(), E::EVENT, payload)
    }

    /// Sends the event of the type that the machine calls `event`, with the content `value` as JSON: for web hooks and other callers that do not
    /// know the type. The content is decoded at once as the event's own type, and sent as it was given.
    ///
    /// Errors as [`send`](Handle::send), and `is_input`: the machine has no event of this name that can be sent (the text lists those that it has),
    /// or the content does not decode.
    pub fn send_json(&self, key: impl AsRef<str>, event: &str, value: impl Serialize) -> SendRequest {
        let payload = self.encoded(event, &value);
        SendRequest::new(Arc::clone(self.engine_of(key.as_ref())), self.client_guard.clone(), M::NAME, key.as_ref(), event, payload)
    }

    fn encoded(&self, event: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
        let known = self.engines.first().catalog.expect(M::NAME)?;
        let mut events: Vec<_> = known.machine.edges.iter().filter(|edge| edge.after.is_none()).map(|edge| edge.event.as_str()).collect();
        events.sort_unstable();
        events.dedup();
        if !events.contains(&event) {
            let meant = nearest(event, events.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let listed = listed(events.iter().copied());
            return Err(Error::input(format!("`{}` has no event `{}`; it takes {listed}{meant}", M::NAME, event.escape_debug())));
        }
        let payload = encode::payload(value, event, self.engines.first().limits.payload)?;
        match known.why_not(event, &payload) {
            Some(why) => Err(Error::input(format!("the content does not decode as `{event}`: {why}"))),
            None => Ok(payload),
        }
    }

    /// Sends an event in the caller's own transaction. The event is sent if and only if the transaction commits. `tx` is a `&mut` sqlx
    /// transaction or connection to the database of this handle.
    ///
    /// If the future is dropped early, for example by a timeout, the transaction contains either the whole send or nothing of it.
    ///
    /// On SQLite, begin the transaction with sqlx's `begin_with("begin immediate")` and commit it soon, because nobody else can write
    /// meanwhile. Returns an error if sqlx did not begin the transaction.
    pub fn send_in<'t, E: EventFor<M>>(&self, tx: impl Into<Conn<'t>>, key: impl AsRef<str>, event: E) -> SendInTransaction<'t> {
        self.send(key, event).in_transaction(tx)
    }

    /// Sends many events in as few commits as possible. The stream yields one answer for each item, in the order of the items. Each item
    /// succeeds or fails alone, as with [`send`](Handle::send). Events for one instance keep their order.
    ///
    /// An item is a pair `(key, event)` or a [`SendItem`](send_many::SendItem), which also takes a deduplication id and a delay.
    ///
    /// ```
    /// # use fsm_runtime::handle::{Handle, send_many::SendItem};
    /// # use fsm_runtime::registry::{EventFor, Machine};
    /// # async fn import<M: Machine, E: EventFor<M>>(payments: Handle<M>, paid: Vec<(String, E)>) -> Result<(), fsm_runtime::error::Error> {
    /// let items = paid.into_iter().map(|(key, event)| SendItem::new(&key, event).dedup(format!("import-7-{key}")));
    /// for (n, answer) in payments.send_many(items).collect().await?.into_iter().enumerate() {
    ///     if let Err(refused) = answer {
    ///         eprintln!("item {n}: {refused}");
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn send_many<'i, I>(&self, items: I) -> SendMany<'i>
    where
        I: IntoIterator<Item: IntoSendItem<Event: EventFor<M>>, IntoIter: Send + 'i>,
        M: 'i,
    {
        let handle = self.clone();
        let items = items.into_iter().map(move |item| item.into_send_item().addressed(|key, event| handle.send(key, event)));
        SendMany::new(self.client_guard.clone(), items)
    }

    /// The instance as it is now; `None` if nothing was ever sent to this key.
    ///
    /// Returns an error if the record cannot be decoded, or if this program's machine lacks the instance's state. That happens if the
    /// instance ended before a deployment removed the state, or if code of another version made the transition.
    pub async fn get(&self, key: impl AsRef<str>) -> Result<Option<Instance<M>>, Error> {
        let key = key.as_ref();
        encode::check_key(key)?;
        let engine = self.engine_of(key);
        let seen = engine.read(|| async {
            let Some(mut seen) = instance_view::find(engine, M::NAME, key).await? else { return Ok(None) };
            if let Some((call, _)) = seen.row.newest.filter(|_| engine.is_traced()) {
                let mut reader = engine.store.reader().await?;
                seen.trace = traces::of(&mut reader.conn(), &[call]).await?.remove(&call);
            }
            Ok(Some(seen))
        });
        seen.await?.map(|seen| Instance::of(seen, &engine.data_protection)).transpose()
    }

    /// Waits until nothing is executing, scheduled or in the inbox, or the instance is in error.
    ///
    /// Errors: `is_not_found`; `is_timed_out` if the time given with `within` passed.
    pub fn settled(&self, key: impl AsRef<str>) -> SettledRequest<M> {
        SettledRequest::new(Arc::clone(self.engine_of(key.as_ref())), self.client_guard.clone(), key.as_ref())
    }

    /// Waits until the instance is in a state, or has ended: `wait(key).for_state(S)`, `wait(key).for_end()`. See [`WaitRequest`](wait::WaitRequest).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fsm_runtime::{error::Error, handle::Handle, registry::Machine};
    /// # async fn shown<M: Machine>(payments: Handle<M>, paid: M::State) -> Result<(), Error> {
    /// let payment = payments.wait("order-1042").for_state(paid).within(Duration::from_secs(60)).await?;
    /// let payment = payments.wait("order-1042").for_end().await?;
    /// # Ok(()) }
    /// ```
    pub fn wait(&self, key: impl AsRef<str>) -> Wait<M> {
        Wait::new(Arc::clone(self.engine_of(key.as_ref())), self.client_guard.clone(), key.as_ref())
    }

    /// A stream of the instance: as it is now, and then after each change that is seen, until it has ended. Commits of this process appear
    /// at once and one by one. Commits of other processes are found by polling, and several of them may appear as one.
    ///
    /// Errors of the stream: `is_not_found` ends it; after `is_database` it polls again.
    pub fn watch(&self, key: impl AsRef<str>) -> WatchStream<M> {
        WatchStream::new(Arc::clone(self.engine_of(key.as_ref())), self.client_guard.clone(), key.as_ref())
    }

    /// Every event, attempt, transition and operator's act, oldest first. `is_not_found` for an unknown key.
    pub async fn history(&self, key: impl AsRef<str>) -> Result<Vec<HistoryEntry>, Error> {
        let key = key.as_ref();
        encode::check_key(key)?;
        let engine = self.engine_of(key);
        engine
            .read(|| async {
                let mut reader = engine.store.reader().await?;
                let (row, calls) = self.calls(engine, &mut reader.conn(), key).await?;
                let notes = rows::notes(&mut reader.conn(), row.instance.id).await?;
                Ok(history::merged(calls, notes))
            })
            .await
    }

    /// Every attempt of every call, oldest first. `is_not_found` for an unknown key.
    pub async fn attempts(&self, key: impl AsRef<str>) -> Result<Vec<Attempt>, Error> {
        let key = key.as_ref();
        encode::check_key(key)?;
        let engine = self.engine_of(key);
        engine
            .read(|| async {
                let mut reader = engine.store.reader().await?;
                let (_, calls) = self.calls(engine, &mut reader.conn(), key).await?;
                Ok(calls.into_iter().map(Attempt::from).collect())
            })
            .await
    }

    /// A page of the instances that match the filter, in the order of their creation, or with a key prefix or a search field in the order of
    /// their keys. Returns an `is_input` error if the machine has no search field of a name in the filter. Instances that this program cannot read are listed
    /// separately; on a database with partitions, one of them may be on two pages.
    pub async fn list(&self, filter: Filter) -> Result<Page<Instance<M>>, Error> {
        pages::list(&self.engines, filter).await
    }

    /// The number of instances by state and status.
    pub async fn counts(&self) -> Result<Vec<Count<M>>, Error> {
        let each = self
            .engines
            .all()
            .iter()
            .map(|engine| engine.read(|| async { Ok(rows::counts(&mut engine.store.reader().await?.conn(), M::NAME).await?) }));
        let mut counts: Vec<(Status, Option<String>, u64)> = Vec::new();
        for (status, state, count) in try_join_all(each).await?.into_iter().flatten() {
            match counts.iter_mut().find(|known| known.0 == status && known.1 == state) {
                Some(known) => known.2 += count,
                None => counts.push((status, state, count)),
            }
        }
        Ok(counts.into_iter().map(Count::of).collect())
    }

    /// Runs the newest call again, now and with a full budget. A scheduled attempt of it is replaced. Returns an `is_not_allowed` error if
    /// an attempt of the call is executing or due, or has succeeded.
    pub fn retry(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Retry, None)
    }

    /// Ends the instance. A running verb is informed by `ctx.cancelled()`. If the verb's completion and the cancellation compete, the first
    /// commit wins.
    pub fn cancel(&self, key: impl AsRef<str>, reason: impl Into<String>) -> OperateRequest {
        self.operate(key, Act::Cancel, Some(reason.into()))
    }

    /// Starts no further attempt of the instance until it is resumed. A running attempt continues. Events are accepted and wait.
    pub fn pause(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Pause, None)
    }

    /// Resumes a paused instance.
    pub fn resume(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Resume, None)
    }

    /// Gives up the open or exhausted call. The instance stays in its state and takes the next event of its inbox.
    pub fn skip(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Skip, None)
    }

    /// Replaces the retry policy of the open call. Retries that it has used count. The time of its scheduled attempt does not change.
    /// Returns an `is_not_allowed` error if an attempt is executing or there is no open call.
    pub fn set_retry(&self, key: impl AsRef<str>, policy: Retry) -> OperateRequest {
        self.operate(key, Act::SetRetry(Box::new(policy)), None)
    }

    /// Operates on all instances that match the filter. The filter's limit is only the size of a page.
    pub fn bulk(&self, filter: Filter) -> Bulk<M> {
        Bulk::new(EngineAccess::new(&self.engines, self.client_guard.as_ref()), filter)
    }

    fn operate(&self, key: impl AsRef<str>, act: Act, reason: Option<String>) -> OperateRequest {
        OperateRequest::new(
            Arc::clone(self.engine_of(key.as_ref())),
            self.client_guard.clone(),
            InstanceKey::new(M::NAME, key.as_ref()),
            act,
            reason,
        )
    }

    /// The engine of the partition that has the instance with this key.
    fn engine_of(&self, key: &str) -> &Arc<Engine> {
        self.engines.of_key(key)
    }

    /// The instance, and every attempt of every call, oldest first. `is_not_found` for an unknown key.
    async fn calls(&self, engine: &Engine, conn: &mut Conn<'_>, key: &str) -> Result<(WithNewest, Vec<AttemptRow>), Error> {
        let row = rows::find(conn, M::NAME, key).await?.ok_or_else(|| Error::not_found(M::NAME, key))?;
        let calls = calls_of(conn, &row, &engine.data_protection).await?;
        Ok((row, calls))
    }
}
