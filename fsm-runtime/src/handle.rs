//! The typed door to the instances of one machine: send, look, wait, operate.

pub mod activity;
pub mod history;
pub mod instance_view;
pub mod operate;
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

use fsm_core::check::{listed, nearest};
use fsm_core::decide::operate::Act;
use fsm_core::instance::Instance as InstanceRow;
use fsm_core::retry::Retry;
use serde::Serialize;

use crate::committer::request::InstanceKey;
use crate::encode;
use crate::engine::{ClientGuard, Engine};
use crate::error::Error;
use crate::registry::{EventFor, Machine};
use crate::store::conn::Conn;
use crate::store::view as rows;
use crate::store::view::PageFilter;
use history::HistoryEntry;
use instance_view::{InstanceView, calls_of, with_calls};
use operate::{Bulk, OperateRequest};
use send::{SendInTransaction, SendRequest};
use send_many::{IntoSendItem, SendMany};
use settled::SettledRequest;
use view::{Attempt, Count, Filter, Instance, Page, Unreadable};
use wait::Wait;
use watch::WatchStream;

/// A typed handle to the instances of the machine `M`. Cheap to clone.
pub struct Handle<M> {
    engine: Arc<Engine>,
    client_guard: Option<Arc<ClientGuard>>,
    machine: PhantomData<fn() -> M>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Handle { engine: Arc::clone(&self.engine), client_guard: self.client_guard.clone(), machine: PhantomData }
    }
}

impl<M: Machine> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle to \"{}\"", M::NAME)
    }
}

impl<M: Machine> Handle<M> {
    pub(crate) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>) -> Handle<M> {
        Handle { engine, client_guard, machine: PhantomData }
    }

    /// Sends an event to the instance `key`, which comes to be if the event is a start. Durable once this returns.
    ///
    /// Errors: `is_refused` when the event fits no state the instance can be in once all before it succeeded; `is_busy`
    /// when its inbox is full, or it is busy and the sender would not wait; `is_conflict` for another request under the
    /// same dedup id; a key or payload out of bounds; `is_database` when the
    /// database could not be used within the patience of the builder: the text says so if nothing was written for certain.
    pub fn send<E: EventFor<M>>(&self, key: impl AsRef<str>, event: E) -> SendRequest {
        let engine = Arc::clone(&self.engine);
        SendRequest::new(
            engine,
            self.client_guard.clone(),
            M::NAME,
            key.as_ref(),
            E::EVENT,
            encode::payload(&event, E::EVENT, self.engine.limits.payload),
        )
    }

    /// Sends the event of the type that the machine calls `event`, with the content `value` as JSON: for web hooks and other callers that do not
    /// know the type. The content is decoded at once as the event's own type, and sent as it was given.
    ///
    /// Errors as [`send`](Handle::send), and `is_input`: the machine has no event of this name that can be sent (the text lists those that it has),
    /// or the content does not decode.
    pub fn send_json(&self, key: impl AsRef<str>, event: &str, value: impl Serialize) -> SendRequest {
        let payload = self.encoded(event, &value);
        SendRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), M::NAME, key.as_ref(), event, payload)
    }

    fn encoded(&self, event: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
        let known = self.engine.catalog.expect(M::NAME)?;
        let mut events: Vec<_> = known.machine.edges.iter().filter(|edge| edge.after.is_none()).map(|edge| edge.event.as_str()).collect();
        events.sort_unstable();
        events.dedup();
        if !events.contains(&event) {
            let meant = nearest(event, events.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let listed = listed(events.iter().copied());
            return Err(Error::input(format!("`{}` has no event `{}`; it takes {listed}{meant}", M::NAME, event.escape_debug())));
        }
        let payload = encode::payload(value, event, self.engine.limits.payload)?;
        match known.why_not(event, &payload) {
            Some(why) => Err(Error::input(format!("the content does not decode as `{event}`: {why}"))),
            None => Ok(payload),
        }
    }

    /// Sends an event in the caller's own transaction: it is sent if and only if that commits. `tx` is a `&mut` sqlx
    /// transaction or connection to the database of this handle.
    ///
    /// Whenever its future is dropped, for example by a timeout, the transaction has all of the send or nothing of it.
    ///
    /// On SQLite begin the transaction with `begin_with("begin immediate")` of sqlx, and commit soon: meanwhile nobody else writes. An error if
    /// sqlx did not begin it.
    pub fn send_in<'t, E: EventFor<M>>(&self, tx: impl Into<Conn<'t>>, key: impl AsRef<str>, event: E) -> SendInTransaction<'t> {
        self.send(key, event).in_transaction(tx)
    }

    /// Sends many events in as few commits as possible: a stream of one answer for each item, in the order of the items. Each item succeeds or
    /// fails alone, as with [`send`](Handle::send). Events for one instance keep their order.
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
        SendMany::new(Arc::clone(&self.engine), self.client_guard.clone(), items)
    }

    /// The instance as it is now; `None` if nothing was ever sent to this key.
    ///
    /// An error if its record does not decode, or if it is in a state that this program's machine does not have: one that ended before a
    /// deploy removed the state, or that code of another version moved there.
    pub async fn get(&self, key: impl AsRef<str>) -> Result<Option<Instance<M>>, Error> {
        self.look(key.as_ref()).await?.map(|seen| self.typed(seen)).transpose()
    }

    /// The instance as it is now, in the engine's own types.
    async fn look(&self, key: &str) -> Result<Option<InstanceView>, Error> {
        encode::check_key(key)?;
        let mut reader = self.engine.store.reader().await?;
        let conn = &mut reader.conn();
        let Some(row) = rows::find(conn, M::NAME, key).await? else { return Ok(None) };
        Ok(with_calls(conn, vec![row], &self.engine.data_protection).await?.pop())
    }

    fn typed(&self, seen: InstanceView) -> Result<Instance<M>, Error> {
        Instance::of(seen, &self.engine.data_protection)
    }

    /// Waits until nothing is executing, scheduled or in the inbox, or the instance is in error.
    ///
    /// Errors: `is_not_found`; `is_timed_out` when `within` was given and passed.
    pub fn settled(&self, key: impl AsRef<str>) -> SettledRequest<M> {
        SettledRequest::new(self.clone(), key.as_ref())
    }

    /// Waits until the instance is in a state, or has ended: `wait(key).for_state(S)`, `wait(key).for_end()`. See [`WaitRequest`].
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
        Wait::new(self.clone(), key.as_ref())
    }

    /// The instance as it is, and then after each change that is seen, until it has ended: the commits of this process at
    /// once and one by one; those of others by looking now and then, several of them as one.
    ///
    /// The stream's errors: `is_not_found`, which ends it; `is_database`, after which it looks again.
    pub fn watch(&self, key: impl AsRef<str>) -> WatchStream<M> {
        WatchStream::new(Arc::clone(&self.engine), self.client_guard.clone(), key.as_ref())
    }

    /// Every event, attempt, transition and operator's act, oldest first. `is_not_found` for an unknown key.
    pub async fn history(&self, key: impl AsRef<str>) -> Result<Vec<HistoryEntry>, Error> {
        encode::check_key(key.as_ref())?;
        let mut reader = self.engine.store.reader().await?;
        let row = self.expect(&mut reader.conn(), key.as_ref()).await?;
        let calls = calls_of(&mut reader.conn(), &row, &self.engine.data_protection).await?;
        let notes = rows::notes(&mut reader.conn(), row.id).await?;
        Ok(history::told(calls, notes))
    }

    /// Every attempt of every call, oldest first. `is_not_found` for an unknown key.
    pub async fn attempts(&self, key: impl AsRef<str>) -> Result<Vec<Attempt>, Error> {
        encode::check_key(key.as_ref())?;
        let mut reader = self.engine.store.reader().await?;
        let row = self.expect(&mut reader.conn(), key.as_ref()).await?;
        let calls = calls_of(&mut reader.conn(), &row, &self.engine.data_protection).await?;
        Ok(calls.into_iter().map(Attempt::from).collect())
    }

    /// The instances that the filter lets through, a page at a time: in the order of their creation, or with
    /// [`key_prefix`](Filter::key_prefix) in the order of their keys. Those that this program cannot read are
    /// named apart.
    pub async fn list(&self, filter: Filter) -> Result<Page<Instance<M>>, Error> {
        let mut reader = self.engine.store.reader().await?;
        let conn = &mut reader.conn();
        let limit = filter.limit.clamp(1, Filter::MOST);
        let wanted = PageFilter {
            status: filter.status,
            state: filter.state,
            paused: filter.paused,
            key_prefix: filter.key_prefix,
            retrying: filter.retrying,
            after: filter.after.map(|cursor| cursor.0),
            limit,
            ..PageFilter::default()
        };
        let found = rows::page(conn, M::NAME, &wanted).await?;
        let next = found.next.map(view::Cursor);
        let (mut items, mut unreadable) = (Vec::with_capacity(found.rows.len()), Vec::new());
        for seen in with_calls(conn, found.rows, &self.engine.data_protection).await? {
            let key = seen.row.key.clone();
            match Instance::of(seen, &self.engine.data_protection) {
                Ok(instance) => items.push(instance),
                Err(error) => unreadable.push(Unreadable { key, why: error.to_string() }),
            }
        }
        Ok(Page { items, next, unreadable })
    }

    /// How many instances there are, by state and status.
    pub async fn counts(&self) -> Result<Vec<Count<M>>, Error> {
        let mut reader = self.engine.store.reader().await?;
        let counted = rows::counts(&mut reader.conn(), M::NAME).await?;
        Ok(counted.into_iter().map(Count::of).collect())
    }

    /// Runs the newest call again, now and with a fresh budget. Allowed if and only if no attempt of it is executing, due
    /// or succeeded; a scheduled one is dropped. Otherwise `is_not_allowed`.
    pub fn retry(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Retry, None)
    }

    /// Ends the instance. A verb that executes is told through `ctx.cancelled()`; whichever commits first wins.
    pub fn cancel(&self, key: impl AsRef<str>, reason: impl Into<String>) -> OperateRequest {
        self.operate(key, Act::Cancel, Some(reason.into()))
    }

    /// Starts no attempt of the instance until it is resumed. What executes goes on; events are taken and wait.
    pub fn pause(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Pause, None)
    }

    /// Lets a paused instance go on.
    pub fn resume(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Resume, None)
    }

    /// Gives up the open or exhausted call; the instance rests in the state it was in and takes what waits.
    pub fn skip(&self, key: impl AsRef<str>) -> OperateRequest {
        self.operate(key, Act::Skip, None)
    }

    /// Lets the open call go on under another retry policy, counting the retries it has used. Its scheduled attempt keeps
    /// its moment. `is_not_allowed` while an attempt executes, and without an open call.
    pub fn set_retry(&self, key: impl AsRef<str>, policy: Retry) -> OperateRequest {
        self.operate(key, Act::SetRetry(Box::new(policy)), None)
    }

    /// Acts on every instance that the filter lets through, whatever its limit, which is the size of a page.
    pub fn bulk(&self, filter: Filter) -> Bulk<M> {
        Bulk::new(self.clone(), filter)
    }

    pub(crate) fn operating(&self, key: &str, act: Act) -> OperateRequest {
        self.operate(key, act, None)
    }

    fn operate(&self, key: impl AsRef<str>, act: Act, reason: Option<String>) -> OperateRequest {
        OperateRequest::new(Arc::clone(&self.engine), self.client_guard.clone(), InstanceKey::new(M::NAME, key.as_ref()), act, reason)
    }

    async fn expect(&self, conn: &mut Conn<'_>, key: &str) -> Result<InstanceRow, Error> {
        rows::find(conn, M::NAME, key).await?.ok_or_else(|| Error::not_found(M::NAME, key))
    }
}
