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

use crate::error::Error;
use crate::store::epoch::Epoch;
use crate::store::lock::{Memory, Seen};
use crate::store::timers::DueTimer;

/// How long a caller waits for a database that is away before it is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// An instance by the user's name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Whose {
    pub(crate) machine: Arc<str>,
    pub(crate) key: Arc<str>,
}

/// Something that is to be decided and written.
pub(crate) struct Request {
    pub(crate) whose: Whose,
    pub(crate) what: What,
    /// How often it was put back: after an unknown commit it may have been carried out already.
    pub(crate) tries: u32,
    /// What is remembered of its instance, since it is under way.
    pub(super) memory: Option<Memory>,
    since: Instant,
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
}

/// The five reasons for which the database learns about an instance, at one door.
pub(crate) enum What {
    Send(Send),
    Settle(Box<Report>),
    Fire(Box<DueTimer>),
    Operate(Box<Operation>),
}

/// How an attempt ended, from the session that held it, or from the sweeper.
pub(crate) struct Report {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) outcome: Outcome,
    /// The slot it ran in: the next call of the instance runs on in it.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The call that follows from it by itself: what it carries is sealed for that call.
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
    Settled {
        counted: bool,
    },
    Fired,
    Operated,
}

impl Whose {
    pub(crate) fn new(machine: &str, key: &str) -> Whose {
        Whose { machine: machine.into(), key: key.into() }
    }
}

impl Request {
    pub(crate) fn new(whose: Whose, what: What, reply: Option<oneshot::Sender<Result<Reply, Error>>>) -> Request {
        Request { whose, what, tries: 0, memory: None, since: Instant::now(), reply }
    }

    pub(crate) fn again(self) -> Request {
        Request { tries: self.tries + 1, memory: None, ..self }
    }

    pub(crate) fn is_patient(&self) -> bool {
        match &self.what {
            // What the sweeper and the finder ask for they find again, and they have others to look after.
            What::Settle(report) if report.outcome == Outcome::Lost => false,
            What::Fire(_) => false,
            What::Settle(_) => true,
            What::Send(_) | What::Operate(_) => self.since.elapsed() < PATIENCE,
        }
    }

    /// Whether it is about what waited in the database for its time.
    pub(super) fn was_due(&self) -> bool {
        match &self.what {
            What::Send(_) | What::Operate(_) => false,
            What::Settle(report) => report.attempt.was_due(),
            What::Fire(_) => true,
        }
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.what, What::Send(_))
    }

    /// Whether it may well be carried out by one statement, without a lock while it is decided.
    pub(crate) fn is_short(&self) -> bool {
        let is_first = self.tries == 0;
        match &self.what {
            What::Send(_) => is_first,
            What::Settle(report) => is_first && report.outcome.sends().is_empty() && self.memory != Some(Memory::SomethingWaits),
            What::Fire(_) | What::Operate(_) => false,
        }
    }

    /// How its instance was seen here last, if that may still be so; with SQLite, in that epoch.
    pub(crate) fn seen(&self, epoch: Option<Epoch>) -> Option<&Seen> {
        self.memory.as_ref()?.seen(epoch)
    }

    pub(crate) fn answer(self, answer: Result<Reply, Error>) {
        if let Some(reply) = self.reply {
            // Nobody may be there to hear it: the caller went away, and the request was carried out all the same.
            let _ = reply.send(answer);
        } else if let Err(error) = answer {
            tracing::warn!(machine = &*self.whose.machine, key = &*self.whose.key, %error, "a request of the engine's own failed");
        }
    }

    /// The slot of the attempt whose end this is.
    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        match &mut self.what {
            What::Settle(report) => report.permit.take(),
            _ => None,
        }
    }

    /// Every instance that carrying it out may write.
    pub(super) fn touches(&self) -> Vec<Whose> {
        let mut touches = vec![self.whose.clone()];
        if let What::Settle(report) = &self.what {
            touches.extend(report.outcome.sends().iter().map(|send| Whose::new(&send.machine, &send.key)));
        }
        touches
    }
}

/// Every instance that a batch may write.
pub(crate) fn touched(batch: &[Request]) -> Vec<Whose> {
    batch.iter().flat_map(Request::touches).collect()
}
