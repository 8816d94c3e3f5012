//! The requests to the committer: what is to be decided and written, and the receiver of the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::call::Attempt;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Send, SendOutcome};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::Outcome;
use fsm_core::trace::TraceContext;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

pub(crate) use super::instance_key::InstanceKey;
use super::retry::{self, Next, Origin};
use super::ticket::Ticket;
use crate::error::Error;
use crate::guard;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::lock::{CachedSnapshot, RowSnapshot};
use crate::store::timers::DueTimer;

/// The number of panics after which a request is not tried again, because it may cause them. A report is always tried again, because it
/// must not be lost.
const MOST_PANICS: u32 = 3;
/// The wait before the next try after a panic, so that a commit that always panics does not run in a tight loop.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// The number of a request in the queue, in the order of arrival.
pub(crate) type Number = u64;

/// One request to the committer.
pub(crate) struct Request {
    pub(crate) target: InstanceKey,
    pub(crate) kind: RequestKind,
    /// The trace context of the sender.
    pub(crate) trace: Option<TraceContext>,
    /// The number of times it was put back after a failed commit. If the outcome of that commit is unknown, the request may have been
    /// carried out already.
    pub(crate) tries: u32,
    /// The number of its commits that panicked.
    panics: u32,
    /// The cached snapshot of its instance, set when its batch begins.
    pub(super) cached: Option<CachedSnapshot>,
    /// Its number in the queue.
    pub(super) number: Number,
    /// It is committed alone, because it may have caused the failure of an earlier batch.
    pub(super) is_alone: bool,
    /// It is decided under locks, because the row that it was decided on was outdated.
    takes_locks: bool,
    origin: Origin,
    since: Instant,
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
    /// The progress of the request, for a caller that waits.
    ticket: Option<Arc<Ticket>>,
}

/// The kinds of requests that can change an instance.
pub(crate) enum RequestKind {
    /// Deliver the events of the outbox that wait for room in the inbox of this instance.
    Deliver,
    /// Carry out what follows from the ends of this instance's children.
    Family,
    Send(Send),
    Complete(Box<Report>),
    Fire(Box<DueTimer>),
    Operate(Box<Operation>),
}

/// The outcome of an attempt, reported by the session that ran it or by the sweeper.
pub(crate) struct Report {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) outcome: Outcome,
    /// The slot of the attempt. The next call of the instance continues in it.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The id of the call that may follow in the same commit. Its payload is encrypted for that id.
    pub(crate) fresh: CallId,
    /// The trace context of the attempt.
    pub(crate) trace: Option<TraceContext>,
}

impl Report {
    pub(crate) fn new(attempt: Arc<Attempt>, outcome: Outcome) -> Report {
        Report { attempt, outcome, permit: None, fresh: CallId(Uuid::now_v7()), trace: None }
    }
}

/// The answer to a request that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Sent {
        instance: InstanceId,
        call: CallId,
        outcome: SendOutcome,
    },
    /// `counted` is false if the report came too late; then it changed nothing.
    Completed {
        counted: bool,
    },
    Fired,
    Operated,
    /// True if something of the instance's family changed.
    Family {
        changed: bool,
    },
    /// The number of events of the outbox that were accepted or refused.
    Delivered {
        events: u32,
    },
}

impl Request {
    pub(crate) fn new(target: InstanceKey, kind: RequestKind, reply: Option<oneshot::Sender<Result<Reply, Error>>>) -> Request {
        let (origin, ticket) = match &kind {
            RequestKind::Send(_) | RequestKind::Operate(_) => (Origin::Caller, Some(Arc::default())),
            RequestKind::Complete(_) => (Origin::Report, None),
            RequestKind::Fire(_) | RequestKind::Deliver | RequestKind::Family => (Origin::Loop, None),
        };
        Request {
            target,
            kind,
            trace: None,
            tries: 0,
            panics: 0,
            cached: None,
            number: 0,
            is_alone: false,
            takes_locks: false,
            origin,
            since: Instant::now(),
            reply,
            ticket,
        }
    }

    /// Adds the trace context of the sender.
    pub(crate) fn traced(self, trace: Option<TraceContext>) -> Request {
        Request { trace, ..self }
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

    pub(crate) fn again(self) -> Request {
        Request { tries: self.tries.saturating_add(1), cached: None, ..self }
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
    pub(super) fn stale(self) -> Request {
        Request { takes_locks: true, ..self.unwritten() }
    }

    /// Prepares the request for the next try when nothing of it was written. The number of tries stays.
    pub(super) fn unwritten(self) -> Request {
        Request { cached: None, ..self }
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
            RequestKind::Send(_) | RequestKind::Operate(_) => false,
            RequestKind::Complete(report) => report.attempt.was_due(),
            RequestKind::Fire(_) | RequestKind::Deliver | RequestKind::Family => true,
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.kind, RequestKind::Send(_))
    }

    /// Returns true if one statement can probably carry out the request, without a lock while it is decided.
    pub(crate) fn is_short(&self) -> bool {
        let is_first = self.tries == 0 && !self.takes_locks;
        match &self.kind {
            RequestKind::Send(_) => is_first,
            RequestKind::Complete(report) => {
                is_first && report.outcome.is_of_one_instance() && self.cached != Some(CachedSnapshot::SomethingWaits)
            }
            RequestKind::Fire(_) | RequestKind::Operate(_) | RequestKind::Deliver | RequestKind::Family => false,
        }
    }

    /// The cached snapshot of its instance, if it may still be valid; on SQLite, if it belongs to this file version.
    pub(crate) fn cached_snapshot(&self, file_version: Option<FileVersion>) -> Option<&RowSnapshot> {
        self.cached.as_ref()?.seen(file_version)
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
        match &mut self.kind {
            RequestKind::Complete(report) => report.permit.take(),
            _ => None,
        }
    }

    /// Returns all instances that the request may write.
    pub(super) fn touches(&self) -> Vec<InstanceKey> {
        let mut touches = vec![self.target.clone()];
        if let RequestKind::Complete(report) = &self.kind {
            touches.extend(report.outcome.sends().iter().map(|send| InstanceKey::new(&send.machine, &send.key)));
            touches.extend(report.outcome.children().iter().map(|child| InstanceKey::new(&child.machine, &child.key)));
        }
        touches
    }
}

/// Returns all instances that a batch may write.
pub(crate) fn touched(batch: &[Request]) -> Vec<InstanceKey> {
    batch.iter().flat_map(Request::touches).collect()
}
