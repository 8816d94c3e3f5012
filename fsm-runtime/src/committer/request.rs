//! The requests to the committer: what is to be decided and written, and the receiver of the answer.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::call::Attempt;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::{self, Reply, Report, RequestKind};
use fsm_core::ids::CallId;
use fsm_core::outcome::Outcome;
use fsm_core::trace::TraceContext;
use fsm_store::error::StoreError;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::retry::{self, Next, Origin};
use super::ticket::Ticket;
use crate::error::Error;
use crate::guard;

/// The number of panics after which a request is not tried again, because it may cause them. A report is always tried again, because it
/// must not be lost.
const MOST_PANICS: u32 = 3;
/// The wait before the next try after a panic, so that a commit that always panics does not run in a tight loop.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// The number of a request in the queue, in the order of arrival.
pub(crate) type Number = u64;

/// One request to the committer. It dereferences to the part that is decided.
pub(crate) struct Request {
    request: request::Request,
    /// The slot of the attempt that is reported. The next call of the instance continues in it.
    permit: Option<OwnedSemaphorePermit>,
    /// The number of its commits that panicked.
    panics: u32,
    /// Its number in the queue.
    pub(super) number: Number,
    /// It is committed alone, because it may have caused the failure of an earlier batch.
    pub(super) is_alone: bool,
    origin: Origin,
    since: Instant,
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
    /// The progress of the request, for a caller that waits.
    ticket: Option<Arc<Ticket>>,
}

impl Deref for Request {
    type Target = request::Request;
    fn deref(&self) -> &request::Request {
        &self.request
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut request::Request {
        &mut self.request
    }
}

/// The report of an attempt without a slot.
pub(crate) fn report(attempt: Arc<Attempt>, outcome: Outcome) -> Report {
    Report { attempt, outcome, has_slot: false, fresh: CallId(Uuid::now_v7()), trace: None }
}

/// The part of each request that is decided.
pub(crate) fn to_decide(batch: &[Request]) -> Vec<&request::Request> {
    batch.iter().map(|request| &request.request).collect()
}

impl Request {
    pub(crate) fn new(target: InstanceKey, kind: RequestKind, reply: Option<oneshot::Sender<Result<Reply, Error>>>) -> Request {
        let (origin, ticket) = match &kind {
            RequestKind::Send(_) | RequestKind::Operate(_) | RequestKind::StartChild(_) | RequestKind::CancelChild { .. } => {
                (Origin::Caller, Some(Arc::default()))
            }
            RequestKind::Complete(_) => (Origin::Report, None),
            RequestKind::Fire(_) | RequestKind::Deliver | RequestKind::Family => (Origin::Loop, None),
        };
        Request {
            request: request::Request::new(target, kind),
            permit: None,
            panics: 0,
            number: 0,
            is_alone: false,
            origin,
            since: Instant::now(),
            reply,
            ticket,
        }
    }

    /// Adds the trace context of the sender.
    pub(crate) fn traced(mut self, trace: Option<TraceContext>) -> Request {
        self.trace = trace;
        self
    }

    /// Gives the request a ticket of its caller.
    pub(super) fn with_ticket(self, ticket: Arc<Ticket>) -> Request {
        Request { ticket: Some(ticket), ..self }
    }

    /// Adds the slot of the attempt that is reported.
    pub(crate) fn with_permit(mut self, permit: Option<OwnedSemaphorePermit>) -> Request {
        if let RequestKind::Complete(report) = &mut self.request.kind {
            report.has_slot = permit.is_some();
        }
        Request { permit, ..self }
    }

    /// Marks the request as one of a loop of the engine.
    pub(crate) fn of_loop(self) -> Request {
        Request { origin: Origin::Loop, ..self }
    }

    #[cfg(test)]
    pub(super) fn with_reply(self, reply: oneshot::Sender<Result<Reply, Error>>) -> Request {
        Request { reply: Some(reply), ..self }
    }

    /// Makes the committer commit the request alone from now on.
    pub(super) fn alone(self) -> Request {
        Request { is_alone: true, ..self }
    }

    pub(crate) fn again(mut self) -> Request {
        self.request.put_back();
        self
    }

    /// Prepares the request for the next try after its commit panicked. It is committed alone from now on, because it may have caused the
    /// panic.
    pub(super) fn after_a_panic(self) -> Request {
        Request { panics: self.panics.saturating_add(1), is_alone: true, ..self.again() }
    }

    /// The wait before the next try after a panic, or `None` if the request is answered with an error instead.
    pub(super) fn wait_after_a_panic(&self) -> Option<Duration> {
        (self.panics < MOST_PANICS || self.origin == Origin::Report).then_some(AFTER_A_PANIC)
    }

    /// The progress of the request, or `None` if the request cannot be withdrawn.
    pub(super) fn ticket(&self) -> Option<Arc<Ticket>> {
        self.ticket.clone()
    }

    /// Records that a commit of the request begins. Returns false if the caller has given up.
    pub(super) fn begin(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.begin())
    }

    /// Decides whether the request is retried after its commit failed.
    pub(super) fn after(&self, error: &Arc<StoreError>, patience: Duration) -> Next {
        if let Some(ticket) = &self.ticket {
            ticket.failed(error);
        }
        retry::next(self.origin, error.class(), self.tries, self.since.elapsed(), patience)
    }

    /// Records that its instance is locked by another transaction and that nothing was written. Returns false if the caller has given up.
    pub(super) fn met_lock(&self, error: &Arc<StoreError>) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.met_lock(error))
    }

    /// Returns true if the request waits until the lock is free. A loop does not wait: it finds the same work again.
    pub(super) fn waits_for_locks(&self) -> bool {
        self.origin != Origin::Loop
    }

    /// Prepares the request for the next try after its row was outdated. Nothing was written, so the number of tries stays: the outcome is
    /// known.
    pub(super) fn stale(mut self) -> Request {
        self.request.put_back_stale();
        self
    }

    /// Prepares the request for the next try when nothing of it was written. The number of tries stays.
    pub(super) fn unwritten(mut self) -> Request {
        self.request.put_back_unwritten();
        self
    }

    /// The report of an attempt that this process ran, if the request is one.
    pub(super) fn report(&self) -> Option<&Report> {
        match &self.kind {
            RequestKind::Complete(report) if self.origin == Origin::Report => Some(report),
            _ => None,
        }
    }

    /// Returns true if the request belongs to the backlog: a timer, events of the outbox, or an attempt that waited in the database before
    /// it was claimed.
    pub(super) fn was_due(&self) -> bool {
        match &self.kind {
            RequestKind::Send(_) | RequestKind::Operate(_) | RequestKind::StartChild(_) | RequestKind::CancelChild { .. } => false,
            RequestKind::Complete(report) => report.attempt.was_due(),
            RequestKind::Fire(_) | RequestKind::Deliver | RequestKind::Family => true,
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.kind, RequestKind::Send(_))
    }

    pub(crate) fn answer(self, answer: Result<Reply, Error>) {
        if let Some(reply) = self.reply {
            // The caller may be gone; the request was carried out all the same. The caller's waker may panic.
            let _ = guard::guarded("a waker", || reply.send(answer));
        } else if let Err(error) = answer {
            tracing::warn!(machine = &*self.target.machine, key = &*self.target.key, %error, "a request of the engine's own failed");
        }
    }

    /// Takes the slot of the attempt that is reported.
    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }
}

/// Returns all instances that a batch may write.
pub(crate) fn touched(batch: &[Request]) -> Vec<InstanceKey> {
    batch.iter().flat_map(|request| request.touches()).collect()
}
