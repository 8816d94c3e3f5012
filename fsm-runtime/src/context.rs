//! What a verb sees of the engine: the attempt it is in, and what it may ask for.

mod verb_requests;

use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::duration;
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use fsm_core::machine::Machine;
use fsm_core::outcome::VerbRequests;
use fsm_core::time::Timestamp;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{PgConnection, SqliteConnection};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::data::{Data, DataMap};
use crate::data_protection::{DataProtection, Owner};
use crate::encode;
use crate::error::Error;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::store::conn::Conn;
use crate::store::held;
use crate::store::once;
use crate::store::open::Store;
use crate::store::tx::Tx;

/// What an attempt reaches of the process it runs in.
pub(crate) struct VerbEnvironment {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) data_protection: DataProtection,
    pub(crate) data: DataMap,
    pub(crate) machine: Arc<Machine>,
    /// The machine's events, by their types.
    pub(crate) events: Arc<[(TypeId, &'static str)]>,
    /// The names of the machines that this process serves.
    pub(crate) served: Arc<[String]>,
}

impl VerbEnvironment {
    fn event_name(&self, event: TypeId) -> Option<&'static str> {
        self.events.iter().find(|(known, _)| *known == event).map(|(_, name)| *name)
    }

    fn check_served(&self, machine: &str) -> Result<(), Error> {
        if self.served.iter().any(|served| served == machine) { Ok(()) } else { Err(Error::not_served(machine, &self.served)) }
    }
}

/// What a verb sees of the engine: the attempt it is in, and what it may ask for.
///
/// What it asks for is committed with the transition, and forgotten when the attempt fails.
pub struct Ctx<'c> {
    environment: VerbEnvironment,
    attempt: Arc<Attempt>,
    key: String,
    entered_at: Option<Timestamp>,
    idempotency_key: String,
    last_error: Option<String>,
    cancelled: watch::Receiver<bool>,
    verb_requests: VerbRequests,
    tx: Option<Tx>,
    client_guard: PhantomData<&'c ()>,
}

impl Ctx<'_> {
    pub(crate) fn new(
        environment: VerbEnvironment,
        attempt: Arc<Attempt>,
        instance: &Instance,
        last_error: Option<String>,
        cancelled: watch::Receiver<bool>,
    ) -> Self {
        let idempotency_key = attempt.call.to_string();
        Ctx {
            environment,
            attempt,
            key: instance.key.clone(),
            entered_at: instance.entered_at,
            idempotency_key,
            last_error,
            cancelled,
            verb_requests: VerbRequests::default(),
            tx: None,
            client_guard: PhantomData,
        }
    }

    /// The instance's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// How many attempts the call has in all; `None` is unlimited.
    pub fn max_attempts(&self) -> Option<u32> {
        self.attempt.retry_state.max_attempts(self.attempt.number)
    }

    /// Whether the call is exhausted if this attempt fails, as far as the count goes.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt.retry_state.remaining == Some(0)
    }

    /// Why the attempt before this one failed.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The same over all attempts of one call, also after a retry by hand, and never the same for two calls: for systems
    /// that take such a key, so that what an attempt did before it died is not done twice.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// The state the instance rests in while this attempt executes; `None` before its first transition.
    pub fn state(&self) -> Option<&str> {
        self.attempt.from.as_deref()
    }

    /// The time of the transition that entered [`state`](Ctx::state); `None` before the first transition. Retries, events that wait, and acts of
    /// operators do not change it.
    pub fn entered_at(&self) -> Option<Timestamp> {
        self.entered_at
    }

    /// The engine's present time: the database's clock on PostgreSQL, this machine's clock on SQLite, and the test's clock in a `TestBed`. Use
    /// it for everything that is stored or compared with stored times, so that tests can move it.
    pub fn now(&self) -> Timestamp {
        self.environment.clock.now()
    }

    /// The connection whose transaction will commit this transition: SQL written there happens exactly once. Opened at
    /// the first call.
    ///
    /// At most half of the runtime's [`connections`](crate::runtime::Builder::connections) are lent so at a time. Others wait for one in their
    /// order, until the attempt times out or is cancelled, and at most for the runtime's
    /// [`operation_timeout`](crate::runtime::Builder::operation_timeout), which is 30 s unless set. A verb that holds one may send, look and
    /// call `ctx.once`: for these there are other connections. What its own transaction has locked, such as the instance of a
    /// `send_in`, it can reach only through that transaction: a plain send to it is an error at once.
    ///
    /// An error when the runtime is on SQLite, no connection became free in time, or the database cannot be reached.
    pub async fn postgres(&mut self) -> Result<&mut PgConnection, Error> {
        if !self.environment.store.is_postgres() {
            return Err(Error::input("this runtime is on SQLite: `ctx.sqlite()` has its connection"));
        }
        match self.transaction().await? {
            Conn::Postgres(link) => Ok(link.into_inner()),
            Conn::Sqlite(_) | Conn::UserSqlite(_) => unreachable!("a store on PostgreSQL has connections to PostgreSQL"),
        }
    }

    /// The connection whose transaction will commit this transition: SQL written there happens exactly once. Opened at
    /// the first call.
    ///
    /// SQLite has one writer: from here to the end of the attempt nobody else commits, so call it late and end soon. What this verb
    /// itself asks for that needs a commit, such as `handle.send(…)`, is an error at once, as is `handle.get(…)` on a database in memory: use
    /// `ctx.send`, or `send_in` with this connection. A task that the verb spawns is not known to belong to it, and waits in vain.
    /// An error when the runtime is on PostgreSQL, or the database cannot be opened.
    pub async fn sqlite(&mut self) -> Result<&mut SqliteConnection, Error> {
        if self.environment.store.is_postgres() {
            return Err(Error::input("this runtime is on PostgreSQL: `ctx.postgres()` has its connection"));
        }
        match self.transaction().await? {
            Conn::UserSqlite(link) => Ok(link.into_inner()),
            Conn::Sqlite(_) | Conn::Postgres(_) => unreachable!("a store on SQLite has connections to SQLite"),
        }
    }

    async fn transaction(&mut self) -> Result<Conn<'_>, Error> {
        if self.tx.is_none() {
            let cancelled = self.cancelled();
            // There are fewer connections than verbs that may want one: who is no longer wanted leaves the place to others.
            let tx = tokio::select! {
                biased;
                tx = opened(self.environment.store.clone()) => tx?,
                () = cancelled => return Err(Error::input("the attempt was to end while it waited for a connection")),
            };
            self.tx = Some(tx);
        }
        let conn = self.tx.as_mut().expect("it was opened just now").conn();
        held::opened(self.environment.store.id(), &conn);
        Ok(conn)
    }

    /// The value of `work`, which is done once over all attempts of this call: what it gave is kept at once, in a commit of its own, also if
    /// this attempt fails later. An error is not kept. Names are unique within a call: the same name again gives what is kept.
    /// A name has 1 to 255 bytes and no NUL; with another one it is an error before `work` is begun.
    ///
    /// On SQLite, call it before `ctx.sqlite()`, which holds the one writer: afterwards it is an error, before `work` is begun.
    pub async fn once<T, E>(&mut self, name: &str, work: impl Future<Output = Result<T, E>>) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        encode::check_once(name)?;
        if self.tx.is_some() && !self.environment.store.is_postgres() {
            return Err(Error::input(format!(
                "`ctx.once(\"{name}\")` comes after `ctx.sqlite()`, which holds the one writer: call it before"
            ))
            .into());
        }
        if let Some(kept) = kept(self.environment.store.clone(), self.attempt.call, name.to_owned()).await? {
            return self.decoded(name, &kept);
        }
        let value = work.await.map_err(Into::into)?;
        let bytes = serde_json::to_vec(&value).map_err(|error| Failure::new(format!("what `{name}` gives does not encode: {error}")))?;
        let sealed = self.environment.data_protection.seal(&self.owner().once(self.attempt.call, name), bytes);
        let bytes = sealed.map_err(|why| Failure::new(format!("what `{name}` gives cannot be stored: {why}")))?;
        let before = keep(self.environment.store.clone(), self.attempt.call, name.to_owned(), bytes, self.environment.clock.now()).await?;
        before.map_or(Ok(value), |before| self.decoded(name, &before))
    }

    fn decoded<T: DeserializeOwned>(&self, name: &str, kept: &[u8]) -> Result<T, Failure> {
        let place = self.owner().once(self.attempt.call, name);
        let kept = self.environment.data_protection.open(&place, kept);
        let kept = kept.map_err(|why| Failure::new(format!("what `{name}` gave in an earlier attempt cannot be read: {why}")))?;
        serde_json::from_slice(&kept)
            .map_err(|error| Failure::new(format!("what `{name}` gave in an earlier attempt does not decode: {error}")))
    }

    /// Ends when somebody wants this attempt to end: an operator cancelled the instance, its time is over, or it was closed
    /// elsewhere, which another process finds out within a third of a lease. The future is its own, so that
    /// it can stand in a `select!` beside work that uses the context.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut cancelled = self.cancelled.clone();
        async move {
            // No bound: nobody may ever want it to end. The verb decides what it waits for beside this.
            if cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn owner(&self) -> Owner<'_> {
        Owner { machine: &self.attempt.machine, key: &self.key }
    }

    pub(crate) fn data<T: ?Sized + Send + Sync + 'static>(&self) -> Data<T> {
        self.environment.data.get()
    }

    pub(crate) fn take_requests(&mut self) -> VerbRequests {
        std::mem::take(&mut self.verb_requests)
    }

    pub(crate) fn take_tx(&mut self) -> Option<Tx> {
        self.tx.take()
    }
}

// What a verb awaits of the database is boxed: the compiler cannot tell that the store's own futures can be sent while it
// checks a verb for every lifetime of its context.

/// A transaction whose connection a verb can have.
fn opened(store: Store) -> BoxFuture<'static, Result<Tx, Error>> {
    Box::pin(async move { Ok(store.begin_for_user().await?) })
}

/// What the call remembers under this name.
fn kept(store: Store, call: CallId, name: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, Error>> {
    Box::pin(async move {
        let mut reader = store.reader().await?;
        Ok(once::get(&mut reader.conn(), call, &name).await?)
    })
}

/// The call remembers it from now on, or what it remembers already: an attempt that was taken for lost may have been faster.
fn keep(store: Store, call: CallId, name: String, value: Vec<u8>, now: Timestamp) -> BoxFuture<'static, Result<Option<Vec<u8>>, Error>> {
    Box::pin(async move {
        let mut tx = store.begin().await?;
        let is_first = once::put(&mut tx.conn(), call, &name, &value, now).await?;
        let before = if is_first { None } else { once::get(&mut tx.conn(), call, &name).await? };
        tx.commit().await?;
        Ok(before)
    })
}

impl std::fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = self.max_attempts().map_or("any".to_owned(), |most| most.to_string());
        let timeout = self.attempt.retry_state.backoff;
        write!(f, "`{}` `{}`: attempt {} of {of}, backoff {}", self.key, self.attempt.verb, self.attempt.number, duration::display(timeout))
    }
}
