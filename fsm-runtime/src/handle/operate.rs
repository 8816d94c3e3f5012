//! Requests of operators: an act on one instance, or on all instances that match a filter.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::RequestKind;
use fsm_core::decide::operate::{Act, Operation};
use uuid::Uuid;

use super::pages;
use super::view::{Filter, Instance, Unreadable};
use crate::committer::request::Request;
use crate::encode;
use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::engines::ClientGuard;
use crate::error::Error;
use crate::registry::Machine;

/// An operator's act, carried out when it is awaited. The instance's history records it with reason and actor.
#[must_use = "nothing happens until it is awaited"]
pub struct OperateRequest {
    engine: Arc<Engine>,
    client_guard: Option<Arc<ClientGuard>>,
    target: InstanceKey,
    order: Order,
}

/// The act, with its reason, its actor and its request id.
#[derive(Clone)]
struct Order {
    act: Act,
    reason: Option<String>,
    actor: Option<String>,
    request_id: Option<String>,
}

impl Order {
    fn operation(self) -> Result<Operation, Error> {
        if let Some(id) = &self.request_id {
            encode::check_dedup(id)?;
        }
        encode::check_operator(self.actor.as_deref(), self.reason.as_deref())?;
        if let Act::SetRetry(policy) = &self.act
            && let Some(why) = policy.defect()
        {
            return Err(Error::input(format!("that is no retry policy: {why}")));
        }
        // If the outcome of the commit is unknown, the act is requested again. The id prevents a second skip or retry.
        let id = self.request_id.unwrap_or_else(|| Uuid::now_v7().to_string());
        // The control character keeps this id apart from the dedup ids of senders, which do not contain it by chance.
        let request = Some((format!("\u{1}{id}"), encode::act_digest(&self.act)));
        Ok(Operation { act: self.act, reason: self.reason, actor: self.actor, request })
    }
}

impl OperateRequest {
    pub(crate) fn new(
        engine: Arc<Engine>,
        client_guard: Option<Arc<ClientGuard>>,
        target: InstanceKey,
        act: Act,
        reason: Option<String>,
    ) -> OperateRequest {
        OperateRequest { engine, client_guard, target, order: Order { act, reason, actor: None, request_id: None } }
    }

    /// The reason, for the history.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.order.reason = Some(reason.into());
        self
    }

    /// The operator's name, for the history.
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.order.actor = Some(actor.into());
        self
    }

    /// The caller's own id for this act. A second act with the same id on the same instance does nothing. Returns an `is_conflict` error if
    /// the id was used for another act.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.order.request_id = Some(id.into());
        self
    }

    async fn carry_out(self) -> Result<(), Error> {
        encode::check_key(&self.target.key)?;
        let (engine, _client_guard) = (self.engine, self.client_guard);
        let is_cancel = self.order.act == Act::Cancel;
        let kind = RequestKind::Operate(Box::new(self.order.operation()?));
        let target = self.target.clone();
        engine.request(|reply| Request::new(target, kind, Some(reply))).await?;
        if is_cancel {
            engine.cancel_running(&self.target);
        }
        Ok(())
    }
}

impl IntoFuture for OperateRequest {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry_out())
    }
}

/// The instances that match a filter, for one act on all of them.
pub struct Bulk<M: Machine> {
    access: EngineAccess,
    filter: Filter,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Bulk<M> {
    pub(crate) fn new(access: EngineAccess, filter: Filter) -> Bulk<M> {
        Bulk { access, filter, machine: PhantomData }
    }

    /// [`Handle::retry`](super::Handle::retry) for each instance.
    pub fn retry(self) -> BulkRequest<M> {
        self.act(Act::Retry, None)
    }

    /// [`Handle::cancel`](super::Handle::cancel) for each instance.
    pub fn cancel(self, reason: impl Into<String>) -> BulkRequest<M> {
        self.act(Act::Cancel, Some(reason.into()))
    }

    /// [`Handle::pause`](super::Handle::pause) for each instance.
    pub fn pause(self) -> BulkRequest<M> {
        self.act(Act::Pause, None)
    }

    /// [`Handle::resume`](super::Handle::resume) for each instance.
    pub fn resume(self) -> BulkRequest<M> {
        self.act(Act::Resume, None)
    }

    /// [`Handle::skip`](super::Handle::skip) for each instance.
    pub fn skip(self) -> BulkRequest<M> {
        self.act(Act::Skip, None)
    }

    fn act(self, act: Act, reason: Option<String>) -> BulkRequest<M> {
        BulkRequest { bulk: self, order: Order { act, reason, actor: None, request_id: None } }
    }
}

/// An act on all instances that match a filter. [`dry_run`](BulkRequest::dry_run) returns a plan with the instances, and the plan acts on
/// exactly those. Awaiting the request itself does both.
#[must_use = "nothing happens until it is awaited"]
pub struct BulkRequest<M: Machine> {
    bulk: Bulk<M>,
    order: Order,
}

/// The instances that an act will be carried out on.
pub struct BulkPlan<M: Machine> {
    access: EngineAccess,
    order: Order,
    /// The instances as they were when they were listed.
    pub instances: Vec<Instance<M>>,
    /// Instances among them that this program cannot read. The act is carried out on them too.
    pub unreadable: Vec<Unreadable>,
}

/// The result of an act on many instances.
#[derive(Debug)]
pub struct BulkOutcome {
    /// The keys of the instances on which the act was carried out, or had no effect because it had been carried out before.
    pub done: Vec<String>,
    /// The keys of the other instances, each with the error.
    pub refused: Vec<(String, Error)>,
}

impl<M: Machine> BulkRequest<M> {
    /// The reason, for each history.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.order.reason = Some(reason.into());
        self
    }

    /// The operator's name, for each history.
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.order.actor = Some(actor.into());
        self
    }

    /// The caller's own id for this act. On each instance, a second act with the same id does nothing.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.order.request_id = Some(id.into());
        self
    }

    /// Lists every instance that matches the filter, page by page. Changes nothing.
    pub async fn dry_run(self) -> Result<BulkPlan<M>, Error> {
        let Bulk { access, mut filter, .. } = self.bulk;
        let (mut instances, mut unreadable) = (Vec::new(), Vec::new());
        loop {
            let page = pages::list(&access.engines, filter.clone()).await?;
            instances.extend(page.items);
            unreadable.extend(page.unreadable);
            match page.next {
                Some(cursor) => filter = filter.after(cursor),
                None => return Ok(BulkPlan { access, order: self.order, instances, unreadable }),
            }
        }
    }
}

impl<M: Machine> BulkPlan<M> {
    /// Carries out the act on each instance. A refusal does not affect the other instances.
    pub async fn execute(self) -> Result<BulkOutcome, Error> {
        let mut outcome = BulkOutcome { done: Vec::new(), refused: Vec::new() };
        let unreadable = self.unreadable.into_iter().map(|instance| instance.key);
        for key in self.instances.into_iter().map(|instance| instance.key).chain(unreadable) {
            let (engine, client_guard) = (Arc::clone(self.access.engines.of_key(&key)), self.access.client_guard.clone());
            let target = InstanceKey::new(M::NAME, &key);
            match (OperateRequest { engine, client_guard, target, order: self.order.clone() }).await {
                Ok(()) => outcome.done.push(key),
                Err(error) if error.is_database() => return Err(error),
                Err(error) => outcome.refused.push((key, error)),
            }
        }
        Ok(outcome)
    }
}

impl<M: Machine> IntoFuture for BulkRequest<M> {
    type Output = Result<BulkOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.dry_run().await?.execute().await })
    }
}
