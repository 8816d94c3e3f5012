//! What is asked of the committer: something that is to be decided and written, and who waits for the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm_core::call::Attempt;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Send, SendOutcome};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::Outcome;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::lines::Number;
use super::retry::{self, Next};
use super::ticket::Ticket;
use crate::error::Error;
use crate::guard;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::lock::{CachedSnapshot, RowSnapshot};
use crate::store::timers::DueTimer;

/// A request whose commit panicked so often is not tried again: it may be what panics. The end of an attempt is, for it must not be lost.
const MOST_PANICS: u32 = 3;
/// The wait before that, which a commit that always panics must not shorten.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// An instance by the user's name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InstanceKey {
    pub(crate) machine: Arc<str>,
    pub(crate) key: Arc<str>,
}

/// Something that is to be decided and written.
pub(crate) struct Request {
    pub(crate) target: InstanceKey,
    pub(crate) kind: RequestKind,
    /// How often it was put back: after an unknown commit it may have been carried out already.
    pub(crate) tries: u32,
    /// How many commits of it panicked.
    panics: u32,
    /// What is remembered of its instance, since it is under way.
    pub(super) cached: Option<CachedSnapshot>,
    /// Its number while it is in the queue.
    pub(super) number: Number,
    /// It is committed alone: a batch failed in a way that may be the fault of one of its members.
    pub(super) is_alone: bool,
    origin: Origin,
    since: Instant,
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
    /// How far it has come, for a caller.
    ticket: Option<Arc<Ticket>>,
}

/// Who makes a request, and so for how long it is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A program: until its patience ends.
    Caller,
    /// The worker of an attempt that ended: for as long as the process lives.
    Report,
    /// A loop of the engine, which finds the same work again: not at all.
    Loop,
}

/// The five reasons for which the database learns about an instance, at one door.
pub(crate) enum RequestKind {
    Send(Send),
    Complete(Box<Report>),
    Fire(Box<DueTimer>),
    Operate(Box<Operation>),
}

/// How an attempt ended, from the session that held it, or from the sweeper.
pub(crate) struct Report {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) outcome: Outcome,
    /// The slot it ran in: the next call of the instance runs on in it.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The call that follows from it by itself: what it carries is encrypted for that call.
    pub(crate) fresh: CallId,
}

impl Report {
    pub(crate) fn new(attempt: Arc<Attempt>, outcome: Outcome) -> Report {
        Report { attempt, outcome, permit: None, fresh: CallId(Uuid::now_v7()) }
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
    /// Whether the report counted; a late one changes nothing.
    Completed {
        counted: bool,
    },
    Fired,
    Operated,
}

impl InstanceKey {
    pub(crate) fn new(machine: &str, key: &str) -> InstanceKey {
        InstanceKey { machine: machine.into(), key: key.into() }
    }
}

impl Request {
    pub(crate) fn new(target: InstanceKey, kind: RequestKind, reply: Option<oneshot::Sender<Result<Reply, Error>>>) -> Request {
        let (origin, ticket) = match &kind {
            RequestKind::Send(_) | RequestKind::Operate(_) => (Origin::Caller, Some(Arc::default())),
            RequestKind::Complete(_) => (Origin::Report, None),
            RequestKind::Fire(_) => (Origin::Loop, None),
        };
        Request {
            target,
            kind,
            tries: 0,
            panics: 0,
            cached: None,
            number: 0,
            is_alone: false,
            origin,
            since: Instant::now(),
            reply,
            ticket,
        }
    }

    /// The same, of a loop of the engine.
    pub(crate) fn of_loop(self) -> Request {
        Request { origin: Origin::Loop, ..self }
    }

    #[cfg(test)]
    pub(super) fn with_reply(self, reply: oneshot::Sender<Result<Reply, Error>>) -> Request {
        Request { reply: Some(reply), ..self }
    }

    /// The same, in a commit of its own from now on.
    pub(super) fn alone(self) -> Request {
        Request { is_alone: true, ..self }
    }

    pub(crate) fn again(self) -> Request {
        Request { tries: self.tries.saturating_add(1), cached: None, ..self }
    }

    /// The same, after its commit panicked: in a commit of its own from now on, for it may be what panics.
    pub(super) fn after_a_panic(self) -> Request {
        Request { panics: self.panics.saturating_add(1), is_alone: true, ..self.again() }
    }

    /// The wait before it is tried again after that; `None` for one that is answered with an error instead.
    pub(super) fn wait_after_a_panic(&self) -> Option<Duration> {
        (self.panics < MOST_PANICS || self.origin == Origin::Report).then_some(AFTER_A_PANIC)
    }

    /// How far it has come; `None` for one that nobody withdraws.
    pub(super) fn ticket(&self) -> Option<Arc<Ticket>> {
        self.ticket.clone()
    }

    /// A commit of it begins. `false` when its caller gave up before.
    pub(super) fn begin(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.begin())
    }

    /// What becomes of it now that its commit failed.
    pub(super) fn after(&self, error: &Arc<StoreError>, patience: Duration) -> Next {
        if let Some(ticket) = &self.ticket {
            ticket.failed(error);
        }
        retry::next(self.origin, error.class(), self.tries, self.since.elapsed(), patience)
    }

    /// Its instance is locked by another transaction, and nothing of it was written. `false` when nobody waits for it any more.
    pub(super) fn met_lock(&self, error: &Arc<StoreError>) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.met_lock(error))
    }

    /// Whether it waits until the lock is free. A loop finds the same work again, and has others to look after.
    pub(super) fn waits_for_locks(&self) -> bool {
        self.origin != Origin::Loop
    }

    /// Nothing of it was written, so that its next commit is like the first.
    pub(super) fn unwritten(self) -> Request {
        Request { cached: None, ..self }
    }

    /// The end of an attempt that this process ran.
    pub(super) fn report(&self) -> Option<&Report> {
        match &self.kind {
            RequestKind::Complete(report) if self.origin == Origin::Report => Some(report),
            _ => None,
        }
    }

    /// Whether it is about what waited in the database for its time.
    pub(super) fn was_due(&self) -> bool {
        match &self.kind {
            RequestKind::Send(_) | RequestKind::Operate(_) => false,
            RequestKind::Complete(report) => report.attempt.was_due(),
            RequestKind::Fire(_) => true,
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.kind, RequestKind::Send(_))
    }

    /// Whether it may well be carried out by one statement, without a lock while it is decided.
    pub(crate) fn is_short(&self) -> bool {
        let is_first = self.tries == 0;
        match &self.kind {
            RequestKind::Send(_) => is_first,
            RequestKind::Complete(report) => {
                is_first && report.outcome.sends().is_empty() && self.cached != Some(CachedSnapshot::SomethingWaits)
            }
            RequestKind::Fire(_) | RequestKind::Operate(_) => false,
        }
    }

    /// How its instance was seen here last, if that may still be so; with SQLite, in that epoch.
    pub(crate) fn seen(&self, file_version: Option<FileVersion>) -> Option<&RowSnapshot> {
        self.cached.as_ref()?.seen(file_version)
    }

    pub(crate) fn answer(self, answer: Result<Reply, Error>) {
        if let Some(reply) = self.reply {
            // Nobody may be there to hear it: the caller went away, and the request was carried out all the same.
            // Nor need its waker behave.
            let _ = guard::guarded("a waker", || reply.send(answer));
        } else if let Err(error) = answer {
            tracing::warn!(machine = &*self.target.machine, key = &*self.target.key, %error, "a request of the engine's own failed");
        }
    }

    /// The slot of the attempt whose end this is.
    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        match &mut self.kind {
            RequestKind::Complete(report) => report.permit.take(),
            _ => None,
        }
    }

    /// Every instance that carrying it out may write.
    pub(super) fn touches(&self) -> Vec<InstanceKey> {
        let mut touches = vec![self.target.clone()];
        if let RequestKind::Complete(report) = &self.kind {
            touches.extend(report.outcome.sends().iter().map(|send| InstanceKey::new(&send.machine, &send.key)));
        }
        touches
    }
}

/// Every instance that a batch may write.
pub(crate) fn touched(batch: &[Request]) -> Vec<InstanceKey> {
    batch.iter().flat_map(Request::touches).collect()
}
