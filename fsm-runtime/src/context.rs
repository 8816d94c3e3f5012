//! The API inside a verb: data of the attempt, the connection, memoised effects and cancellation.

mod cancellation;
pub mod children;
mod progress;
pub mod verb_requests;

use std::any::TypeId;
use std::collections::HashSet;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::duration;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::outcome::VerbRequests;
use fsm_core::partition::Partition;
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::held;
use fsm_store::once;
use fsm_store::open::Store;
use fsm_store::tx::Tx;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
#[cfg(feature = "postgres")]
use sqlx::PgConnection;
#[cfg(feature = "sqlite")]
use sqlx::SqliteConnection;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::data::{Data, DataMap};
use crate::data_protection::{DataProtection, Owner};
use crate::encode;
use crate::error::Error;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::progress::ProgressOfAttempt;

/// The parts of the process that an attempt uses.
pub(crate) struct VerbEnvironment {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) data_protection: DataProtection,
    pub(crate) data: DataMap,
    pub(crate) machine: Arc<Machine>,
    /// The machine's event types with their names.
    pub(crate) events: Arc<[(TypeId, &'static str)]>,
    /// The names of the machines that this process serves.
    pub(crate) served: Arc<[String]>,
    /// The partition of the instance; `None` for a database without partitions.
    pub(crate) partition: Option<Partition>,
    /// The stores of all partitions, by their numbers; `None` for a database without partitions.
    pub(crate) stores: Option<Arc<[Store]>>,
    /// Wakes the task that writes progress.
    pub(crate) has_progress: Arc<Notify>,
}

impl VerbEnvironment {
    fn event_name(&self, event: TypeId) -> Option<&'static str> {
        self.events.iter().find(|(known, _)| *known == event).map(|(_, name)| *name)
    }

    fn check_served(&self, machine: &str) -> Result<(), Error> {
        let served = &self.served;
        if served.iter().any(|served| served == machine) { Ok(()) } else { Err(Error::not_served(machine, served)) }
    }
}

/// An attempt while its verb runs.
pub(crate) struct RunningVerb {
    environment: VerbEnvironment,
    attempt: Arc<Attempt>,
    key: String,
    entered_at: Option<Timestamp>,
    idempotency_key: String,
    last_error: Option<String>,
    cancelled: watch::Receiver<bool>,
    progress: Arc<ProgressOfAttempt>,
    /// The verb blocks a thread, which has no transaction.
    is_blocking: bool,
    verb_requests: VerbRequests,
    /// The machines and keys of the children that this attempt starts.
    child_keys: HashSet<(String, String)>,
    tx: Option<Tx>,
}

impl RunningVerb {
    pub(crate) fn new(
        environment: VerbEnvironment,
        attempt: Arc<Attempt>,
        instance: &Instance,
        last_error: Option<String>,
        cancelled: watch::Receiver<bool>,
        (progress, is_blocking): (Arc<ProgressOfAttempt>, bool),
    ) -> Self {
        let idempotency_key = attempt.call.to_string();
        let (key, entered_at, verb_requests) = (instance.key.clone(), instance.entered_at, VerbRequests::default());
        RunningVerb {
            environment,
            attempt,
            key,
            entered_at,
            idempotency_key,
            last_error,
            cancelled,
            progress,
            is_blocking,
            verb_requests,
            child_keys: HashSet::new(),
            tx: None,
        }
    }

    pub(crate) fn take_requests(&mut self) -> VerbRequests {
        std::mem::take(&mut self.verb_requests)
    }

    pub(crate) fn take_tx(&mut self) -> Option<Tx> {
        self.tx.take()
    }
}

/// The context of a verb that does not name itself in `Ctx<'_>`: `ctx.next` is checked when it is called.
pub enum Unchecked {}

/// The context of a verb: the data of the attempt, and requests to the engine.
///
/// The requests are committed with the transition. They are discarded if the attempt fails.
///
/// A verb takes `ctx: &mut Ctx<'_>`. A verb that names itself, as in `async fn created(ctx: &mut Ctx<'_, created>, …)`, may request only
/// events with [`next`](Ctx::next) that an edge out of its state accepts: any other is a compile error. Such a verb stands on the edges of one
/// machine, which is declared in the same crate. A function that takes the context of any verb is generic: `fn help<V>(ctx: &mut Ctx<'_, V>)`.
pub struct Ctx<'c, V = Unchecked> {
    running: &'c mut RunningVerb,
    verb: PhantomData<fn() -> V>,
}

impl<'c> Ctx<'c> {
    pub(crate) fn new(running: &'c mut RunningVerb) -> Ctx<'c> {
        Ctx { running, verb: PhantomData }
    }

    pub(crate) fn checked<V>(&mut self) -> Ctx<'_, V> {
        Ctx { running: self.running, verb: PhantomData }
    }
}

impl<V> Ctx<'_, V> {
    /// The instance's key.
    pub fn key(&self) -> &str {
        &self.running.key
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.running.attempt.number
    }

    /// The maximum number of attempts of the call, this one included; `None` if it is unlimited.
    pub fn max_attempts(&self) -> Option<u32> {
        self.running.attempt.retry_state.max_attempts(self.running.attempt.number)
    }

    /// Returns true if the retry policy's count allows no attempt after this one. A time limit of the policy is not considered.
    pub fn is_last_attempt(&self) -> bool {
        self.running.attempt.retry_state.remaining == Some(0)
    }

    /// The error of the previous attempt.
    pub fn last_error(&self) -> Option<&str> {
        self.running.last_error.as_deref()
    }

    /// A text that is the same for all attempts of one call, also after an operator's retry, and different for each call. Pass it to
    /// external systems that accept idempotency keys, so that an effect of a lost attempt is not repeated.
    pub fn idempotency_key(&self) -> &str {
        &self.running.idempotency_key
    }

    /// The state of the instance while this attempt executes; `None` before the first transition.
    pub fn state(&self) -> Option<&str> {
        self.running.attempt.from.as_deref()
    }

    /// The time of the transition that entered [`state`](Ctx::state); `None` before the first transition. Retries, events that wait, and acts of
    /// operators do not change it.
    pub fn entered_at(&self) -> Option<Timestamp> {
        self.running.entered_at
    }

    /// The engine's present time: the database's clock on PostgreSQL, this machine's clock on SQLite, and the test's clock in a `TestBed`. Use
    /// it for everything that is stored or compared with stored times, so that tests can move it.
    pub fn now(&self) -> Timestamp {
        self.running.environment.clock.now()
    }

    /// Returns the connection whose transaction commits this transition, so SQL that is written there takes effect exactly once. The
    /// transaction begins at the first call.
    ///
    /// Verbs get at most half of the runtime's [`connections`](crate::runtime::Builder::connections) at a time. Others wait for one in
    /// order, until the attempt times out or is cancelled, and at most for the runtime's
    /// [`operation_timeout`](crate::runtime::Builder::operation_timeout), 30 s by default. A verb that holds a connection can still send,
    /// read and call `ctx.once`, which use other connections. Rows that its transaction has locked, such as the instance of a `send_in`,
    /// are reachable only through that transaction: a plain send to that instance fails at once.
    ///
    /// Returns an error if the runtime is on SQLite, no connection became free in time, or the database is unreachable.
    #[cfg(feature = "postgres")]
    pub async fn postgres(&mut self) -> Result<&mut PgConnection, Error> {
        if !self.running.environment.store.is_postgres() {
            return Err(Error::input("this runtime is on SQLite: `ctx.sqlite()` has its connection"));
        }
        match self.transaction().await? {
            Conn::Postgres(link) => Ok(link.into_inner()),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) | Conn::UserSqlite(_) => unreachable!("a store on PostgreSQL has connections to PostgreSQL"),
        }
    }

    /// Returns the connection whose transaction commits this transition, so SQL that is written there takes effect exactly once. The
    /// transaction begins at the first call.
    ///
    /// SQLite has one writer: nobody else can commit from this call to the end of the attempt, so call it late. In the same verb, calls
    /// that need a commit of their own, such as `handle.send(…)`, fail at once; on a database in memory, `handle.get(…)` fails too. Use
    /// `ctx.send`, or `send_in` with this connection. A task that the verb spawns is not recognised as part of the verb: its requests wait
    /// until the attempt ends or they time out.
    ///
    /// Returns an error if the runtime is on PostgreSQL, or if the database cannot be opened.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(&mut self) -> Result<&mut SqliteConnection, Error> {
        if self.running.environment.store.is_postgres() {
            return Err(Error::input("this runtime is on PostgreSQL: `ctx.postgres()` has its connection"));
        }
        match self.transaction().await? {
            Conn::UserSqlite(link) => Ok(link.into_inner()),
            _ => unreachable!("a store on SQLite has connections to SQLite"),
        }
    }

    async fn transaction(&mut self) -> Result<Conn<'_>, Error> {
        if self.running.is_blocking {
            return Err(Error::input(
                "a verb that blocks its thread has no transaction: only an `async fn` has `ctx.postgres()` and `ctx.sqlite()`",
            ));
        }
        if self.running.tx.is_none() {
            let cancelled = self.cancelled();
            // There are fewer connections than verbs that may want one. A cancelled attempt leaves its place in the queue to others.
            let tx = tokio::select! {
                biased;
                tx = opened(self.running.environment.store.clone()) => tx?,
                () = cancelled => return Err(Error::input("the attempt was to end while it waited for a connection")),
            };
            self.running.tx = Some(tx);
        }
        let conn = self.running.tx.as_mut().expect("it was opened just now").conn();
        held::opened(self.running.environment.store.id(), &conn);
        Ok(conn)
    }

    /// Runs `work` once for all attempts of this call and returns its value. The value is stored at once in a commit of its own, and is
    /// kept even if this attempt fails later. An error is not stored. The name identifies the effect within the call: a second use of the
    /// name returns the stored value. A name has 1 to 255 bytes and no NUL; otherwise an error is returned and `work` does not start.
    ///
    /// On SQLite, call it before `ctx.sqlite()`, which holds the only writer; after that it returns an error and `work` does not start.
    pub async fn once<T, E>(&mut self, name: &str, work: impl Future<Output = Result<T, E>>) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        encode::check_once(name)?;
        if self.running.tx.is_some() && !self.running.environment.store.is_postgres() {
            return Err(Error::input(format!(
                "`ctx.once(\"{name}\")` comes after `ctx.sqlite()`, which holds the one writer: call it before"
            ))
            .into());
        }
        if let Some(kept) = kept(self.running.environment.store.clone(), self.running.attempt.call, name.to_owned()).await? {
            return self.decoded(name, &kept);
        }
        let value = work.await.map_err(Into::into)?;
        let bytes = serde_json::to_vec(&value).map_err(|error| Failure::new(format!("what `{name}` gives does not encode: {error}")))?;
        let protection = &self.running.environment.data_protection;
        let encrypted = protection.encrypt(&self.owner().once(self.running.attempt.call, name), bytes);
        let bytes = encrypted.map_err(|why| Failure::new(format!("what `{name}` gives cannot be stored: {why}")))?;
        let (store, now) = (self.running.environment.store.clone(), self.running.environment.clock.now());
        let owner = (self.running.attempt.instance, self.running.attempt.call);
        let before = keep(store, owner, name.to_owned(), bytes, now).await?;
        before.map_or(Ok(value), |before| self.decoded(name, &before))
    }

    fn decoded<T: DeserializeOwned>(&self, name: &str, kept: &[u8]) -> Result<T, Failure> {
        let place = self.owner().once(self.running.attempt.call, name);
        let kept = self.running.environment.data_protection.open(&place, kept);
        let kept = kept.map_err(|why| Failure::new(format!("what `{name}` gave in an earlier attempt cannot be read: {why}")))?;
        serde_json::from_slice(&kept)
            .map_err(|error| Failure::new(format!("what `{name}` gave in an earlier attempt does not decode: {error}")))
    }

    fn owner(&self) -> Owner<'_> {
        Owner { machine: &self.running.attempt.machine, key: &self.running.key }
    }

    pub(crate) fn data<T: ?Sized + Send + Sync + 'static>(&self) -> Data<T> {
        self.running.environment.data.get()
    }
}

// Database futures that a verb awaits are boxed. Otherwise the compiler cannot prove that they are `Send` for every lifetime of the
// context.

/// Begins a transaction whose connection a verb can use.
fn opened(store: Store) -> BoxFuture<'static, Result<Tx, Error>> {
    Box::pin(async move { Ok(store.begin_for_user().await?) })
}

/// Reads the value that is stored under this name.
fn kept(store: Store, call: CallId, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, Error>> {
    Box::pin(async move {
        let mut reader = store.reader().await?;
        Ok(once::get(&mut reader.conn(), call, &name).await?)
    })
}

/// Stores the value, or returns the value that is already stored. An attempt that was treated as lost may have stored it first.
fn keep(
    store: Store,
    (instance, call): (InstanceId, CallId),
    name: String,
    value: Vec<u8>,
    now: Timestamp,
) -> BoxFuture<'static, Result<Option<Vec<u8>>, Error>> {
    Box::pin(async move {
        let mut tx = store.begin().await?;
        let is_first = once::put(&mut tx.conn(), (instance, call), &name, &value, now).await?;
        let before = if is_first { None } else { once::get(&mut tx.conn(), call, &name).await? };
        tx.commit().await?;
        Ok(before)
    })
}

impl<V> std::fmt::Debug for Ctx<'_, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = self.max_attempts().map_or("any".to_owned(), |most| most.to_string());
        let timeout = self.running.attempt.retry_state.backoff;
        write!(
            f,
            "`{}` `{}`: attempt {} of {of}, backoff {}",
            self.running.key,
            self.running.attempt.verb,
            self.running.attempt.number,
            duration::display(timeout)
        )
    }
}
