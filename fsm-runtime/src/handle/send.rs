//! A send: its options, and its way to the committer or into the caller's transaction.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::{Reply, RequestKind};
use fsm_core::decide::send::{Dedup, Send as Delivery, SendOutcome};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::machine::is_of_children;
use fsm_core::outcome::Event;
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;
use fsm_store::conn::Conn;
use fsm_store::held;
use fsm_store::partitions;
#[cfg(feature = "sqlite")]
use fsm_store::sqlite::savepoint::Savepoint;
use tracing::Instrument;
use uuid::Uuid;

use crate::committer::request::{Request, to_decide};
use crate::data_protection::Owner;
use crate::encode;
use crate::engine::Engine;
use crate::engines::ClientGuard;
use crate::error::{Error, ErrorKind};
use crate::search;
use crate::traces;

/// The number of times that a send in the caller's transaction is decided. It is decided again if another writer created the instance
/// meanwhile.
const TRIES: u32 = 5;

/// The answer to a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The receiving instance.
    pub instance: InstanceId,
    /// The call that the event begins, now or when it leaves the inbox.
    pub call: Option<CallId>,
    /// The outcome of the send.
    pub outcome: SendOutcome,
}

/// A send, carried out when it is awaited.
#[must_use = "nothing is sent until it is awaited"]
pub struct SendRequest {
    pub(super) engine: Arc<Engine>,
    client_guard: Option<Arc<ClientGuard>>,
    target: InstanceKey,
    event: Result<Event, Error>,
    pub(super) dedup: Option<String>,
    pub(super) deliver: Deliver,
    reject_if_busy: bool,
    pub(super) priority: Priority,
    trace: Option<TraceContext>,
}

/// When an event is delivered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deliver {
    Now,
    After(Duration),
    At(Timestamp),
}

/// A send in the caller's own transaction, carried out when it is awaited.
#[must_use = "nothing is sent until it is awaited"]
pub struct SendInTransaction<'t> {
    sending: SendRequest,
    conn: Conn<'t>,
}

impl SendRequest {
    pub(crate) fn new(
        engine: Arc<Engine>,
        client_guard: Option<Arc<ClientGuard>>,
        machine: &str,
        key: &str,
        event: &str,
        payload: Result<Vec<u8>, Error>,
    ) -> SendRequest {
        let is_sent =
            if is_of_children(event) { Err(Error::input(format!("`{event}` comes from children, and nobody sends it"))) } else { Ok(()) };
        let event = encode::check_key(key).and(is_sent).and(payload).map(|payload| Event { name: event.to_owned(), payload });
        SendRequest {
            engine,
            client_guard,
            target: InstanceKey::new(machine, key),
            event,
            dedup: None,
            deliver: Deliver::Now,
            reject_if_busy: false,
            priority: Priority::Normal,
            trace: None,
        }
    }

    /// The caller's own id for this request. A second send with the same id to the same instance does nothing and returns the first answer
    /// with the outcome `Duplicate`. Other content under the same id is an `is_conflict` error. Content is compared as JSON. The order of a
    /// map's members does not count, but that of a sequence does, so a `HashSet` in another order is other content.
    pub fn dedup(mut self, id: impl Into<String>) -> Self {
        self.dedup = Some(id.into());
        self
    }

    /// Delivers the event after `wait` or later. The event is checked against the graph at delivery. The send itself fails (`is_refused`)
    /// only if the instance has ended, or if there is no instance and the event cannot start one.
    pub fn after(mut self, wait: Duration) -> Self {
        self.deliver = Deliver::After(wait);
        self
    }

    /// Delivers the event at `time` or later, like [`after`](SendRequest::after).
    pub fn at(mut self, time: impl Into<SystemTime>) -> Self {
        self.deliver = Deliver::At(time.into().into());
        self
    }

    /// Returns an `is_busy` error if the instance is busy, instead of adding the event to its inbox.
    pub fn reject_if_busy(mut self) -> Self {
        self.reject_if_busy = true;
        self
    }

    /// The priority of the call that the event becomes, and of its retries. If more calls are due than there are free slots, those of a higher
    /// priority start first. It does not change the order of the events of one instance, and it is no part of the content that a deduplication
    /// id stands for.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The trace that the event belongs to. By default it is that of the current span, if the feature `otel` is on and a layer of
    /// `tracing-opentelemetry` sees the span.
    pub fn trace(mut self, context: TraceContext) -> Self {
        self.engine.is_traced.store(true, Ordering::Relaxed);
        self.trace = Some(context);
        self
    }

    /// Sends the event in the caller's own transaction. It is sent if and only if the transaction commits.
    pub fn in_transaction<'t>(self, tx: impl Into<Conn<'t>>) -> SendInTransaction<'t> {
        SendInTransaction { sending: self, conn: tx.into() }
    }

    async fn carry_out(self) -> Result<Sent, Error> {
        let (engine, _client_guard) = (Arc::clone(&self.engine), self.client_guard.clone());
        let span = self.span();
        let sending = async {
            let (target, kind, trace) = self.into_request()?;
            let reply = engine.request(|reply| Request::new(target, kind, Some(reply)).traced(trace)).await?;
            Sent::of(reply)
        };
        sending.instrument(span).await
    }

    /// The span of the send.
    pub(super) fn span(&self) -> tracing::Span {
        let event = self.event.as_ref().map(|event| event.name.as_str()).unwrap_or_default();
        let (machine, key) = (&*self.target.machine, &*self.target.key);
        tracing::info_span!("fsm.send", otel.kind = "producer", fsm.machine = machine, fsm.key = key, fsm.event = event)
    }

    /// The request, with the trace context of the current span.
    pub(super) fn into_request(self) -> Result<(InstanceKey, RequestKind, Option<TraceContext>), Error> {
        let mut event = self.event?;
        self.engine.check_here(&self.target.key)?;
        if let Some(dedup) = &self.dedup {
            encode::check_dedup(dedup)?;
        }
        let (id, data_protection) = (CallId(Uuid::now_v7()), &self.engine.data_protection);
        let owner = Owner { machine: &self.target.machine, key: &self.target.key };
        let unfit = |why| Error::other(ErrorKind::Codec, format!("the event `{}` cannot be stored: {why}", event.name));
        let digests = self.dedup.as_ref().map(|_| data_protection.digests(owner, &event.payload)).transpose().map_err(unfit)?;
        let dedup = self.dedup.zip(digests).map(|(id, digests)| Dedup { id, digests });
        let machine = self.engine.catalog.get(&self.target.machine).map(|known| &known.machine);
        // Only an event that can create the instance gives it search fields.
        let machine = machine.filter(|machine| !machine.search.is_empty() && machine.edge(None, &event.name).is_some());
        let search = machine.map_or_else(Vec::new, |machine| search::of_event(&machine.search, &event.payload));
        let payload = std::mem::take(&mut event.payload);
        event.payload = data_protection
            .encrypt(&owner.payload(id), payload)
            .map_err(|why| Error::other(ErrorKind::Codec, format!("the event `{}` cannot be stored: {why}", event.name)))?;
        let deliver_at = match self.deliver {
            Deliver::Now => None,
            Deliver::After(wait) => Some(self.engine.clock.now() + wait),
            Deliver::At(time) => Some(time),
        };
        let inbox_limit = self.engine.limits.inbox;
        let (reject_if_busy, priority) = (self.reject_if_busy, self.priority);
        let send = Delivery { dedup, deliver_at, reject_if_busy, search, priority, ..Delivery::new(id, event, inbox_limit) };
        let trace = self.trace.or_else(|| traces::context_of(&tracing::Span::current()));
        Ok((self.target, RequestKind::Send(send), trace))
    }
}

impl Sent {
    pub(super) fn of(reply: Reply) -> Result<Sent, Error> {
        match reply {
            Reply::Sent { instance, call, outcome } => Ok(Sent { instance, call: Some(call), outcome }),
            _ => Err(Error::other(ErrorKind::Internal, "a send got an answer of another kind; this is a bug of fsm")),
        }
    }
}

impl SendInTransaction<'_> {
    /// The caller's own id for this request, as for [`SendRequest::dedup`].
    pub fn dedup(self, id: impl Into<String>) -> Self {
        SendInTransaction { sending: self.sending.dedup(id), ..self }
    }

    /// Delivers the event after `wait` or later, like [`SendRequest::after`].
    pub fn after(self, wait: Duration) -> Self {
        SendInTransaction { sending: self.sending.after(wait), ..self }
    }

    /// Delivers the event at `time` or later, like [`SendRequest::at`].
    pub fn at(self, time: impl Into<SystemTime>) -> Self {
        SendInTransaction { sending: self.sending.at(time), ..self }
    }

    /// Returns an `is_busy` error if the instance is busy, like [`SendRequest::reject_if_busy`].
    pub fn reject_if_busy(self) -> Self {
        SendInTransaction { sending: self.sending.reject_if_busy(), ..self }
    }

    /// The priority of the call, like [`SendRequest::priority`].
    pub fn priority(self, priority: Priority) -> Self {
        SendInTransaction { sending: self.sending.priority(priority), ..self }
    }

    /// The trace that the event belongs to, like [`SendRequest::trace`].
    pub fn trace(self, context: TraceContext) -> Self {
        SendInTransaction { sending: self.sending.trace(context), ..self }
    }

    async fn carry_out(mut self) -> Result<Sent, Error> {
        let engine = Arc::clone(&self.sending.engine);
        match (engine.store.is_postgres(), self.conn.is_postgres()) {
            (true, false) => return Err(Error::input("this handle is on PostgreSQL, and the transaction on SQLite")),
            (false, true) => return Err(Error::input("this handle is on SQLite, and the transaction on PostgreSQL")),
            _ => {}
        }
        engine.store.may_begin_calls().await?;
        engine.store.adopt(&mut self.conn);
        if let Some(partition) = engine.partition
            && !partitions::is_on(&mut self.conn, partition).await?
        {
            let (key, number) = (self.sending.target.key.escape_debug(), partition.number());
            let schema = engine.store.schema().unwrap_or_default();
            return Err(Error::input(format!(
                "`{key}` belongs to partition {number}, and the transaction is not on it: connect to its server, and `set local search_path to \
                 {schema}` in the transaction"
            )));
        }
        let span = self.sending.span();
        let (target, kind, trace) = span.in_scope(|| self.sending.into_request())?;
        let request = Request::new(target, kind, None).traced(trace);
        let sent = match self.conn {
            #[cfg(feature = "sqlite")]
            Conn::UserSqlite(link) => {
                let Some(mut savepoint) = Savepoint::set(link).await? else {
                    return Err(Error::input(
                        "the connection is in no transaction that sqlx knows of: begin it with `begin_with(\"begin immediate\")` of sqlx",
                    ));
                };
                let sent = send_in(&engine, &mut savepoint.conn(), &request).await?;
                savepoint.release().await?;
                sent
            }
            mut conn => send_in(&engine, &mut conn, &request).await?,
        };
        engine.notify_after_user_commit();
        tracing::debug!(machine = &*request.target.machine, key = &*request.target.key, outcome = ?sent.outcome, "sent once the caller commits");
        Ok(sent)
    }
}

/// Decides and writes the send in the caller's transaction, which the caller commits.
async fn send_in(engine: &Engine, conn: &mut Conn<'_>, request: &Request) -> Result<Sent, Error> {
    for _ in 0..TRIES {
        let commit_outcome = engine.batch_commit().as_guest().of(conn, &to_decide(std::slice::from_ref(request))).await?.remove(0);
        if let Some(reply) = commit_outcome.reply {
            held::locked(engine.store.id(), conn, &request.target.machine, &request.target.key);
            return Sent::of(reply?);
        }
    }
    Err(Error::other(ErrorKind::Contended, "others created and changed the instance at the same time, again and again; send again"))
}

impl IntoFuture for SendRequest {
    type Output = Result<Sent, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}

impl<'t> IntoFuture for SendInTransaction<'t> {
    type Output = Result<Sent, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 't>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}
