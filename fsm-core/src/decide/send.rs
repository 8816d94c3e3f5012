//! An event arrives: it begins a transition, waits its turn, waits for its time, is known already, or is refused.

use super::inbox::{self, Unread};
use super::refusal::{Refusal, Unfit, whose};
use super::{Moment, Standing, begin};
use crate::changes::{Changes, Payload, Request, Timer, TimerChange};
use crate::ids::{CallId, TimerId};
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::outcome::Event;
use crate::time::Timestamp;

/// A request to deliver an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    /// Its call, once it is taken. Made by the client, so that the same request is known again.
    pub id: CallId,
    /// What is delivered.
    pub event: Event,
    /// The caller's own id for the request, and digests of the payload.
    pub dedup: Option<Dedup>,
    /// Not before this moment.
    pub deliver_at: Option<Timestamp>,
    /// Refuse instead of waiting when the instance is busy.
    pub reject_if_busy: bool,
    /// How many events may wait.
    pub inbox_limit: u64,
}

/// The caller's own id for a request, and by what its content is known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The id, unique within the instance.
    pub id: String,
    /// Digests of the payload. The first is kept, and any of them is the same content: keys of digests change.
    pub digests: Vec<Vec<u8>>,
}

/// What became of a sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendOutcome {
    /// Its transition has begun.
    Started,
    /// It waits in the inbox: the instance is busy, or the process that sent it may begin no call (PostgreSQL's role `fsm_sender`), and a
    /// worker takes it.
    Queued,
    /// It is delivered later.
    Scheduled,
    /// It was sent before; nothing happened now.
    Duplicate,
}

/// The answer to a send that was not refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The call it begins or will begin.
    pub call: CallId,
    /// What became of it.
    pub outcome: SendOutcome,
    /// What is to be written; `None` for a duplicate.
    pub changes: Option<Changes>,
}

impl Dedup {
    fn request(self, call: CallId, event: &str, at: Timestamp) -> Request {
        let digest = self.digests.into_iter().next().unwrap_or_default();
        Request { dedup: self.id, event: Some(event.to_owned()), digest, call, at }
    }
}

/// What a sender is told.
pub type Answer = Result<Accepted, Refusal>;

/// Decides what becomes of an event.
///
/// An event that fits no state the instance can be in once all before it succeeded is refused; so is every event to an
/// ended instance, and a delayed event to an instance that does not exist if the event cannot start one. What this definition cannot judge, because the instance is in a state that it lacks, or will be, waits for a process
/// that can.
pub fn send(machine: &Machine, standing: &Standing, send: Send, moment: Moment) -> Result<Answer, Unread> {
    answer(machine, standing, send, moment, true)
}

/// The same for a process that may begin no call: an event that could begin one waits in the inbox, and a worker is called to take it.
pub fn put(machine: &Machine, standing: &Standing, send: Send, moment: Moment) -> Result<Answer, Unread> {
    answer(machine, standing, send, moment, false)
}

fn answer(machine: &Machine, standing: &Standing, send: Send, moment: Moment, begins: bool) -> Result<Answer, Unread> {
    match known_already(standing, &send) {
        Ok(None) => accept(machine, standing, send, moment, begins),
        Ok(Some(duplicate)) => Ok(Ok(duplicate)),
        Err(refusal) => Ok(Err(refusal)),
    }
}

fn accept(machine: &Machine, standing: &Standing, send: Send, moment: Moment, begins: bool) -> Result<Answer, Unread> {
    let Standing { instance, is_new, .. } = standing;
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(instance) });
    changes.is_new = *is_new;
    changes.request = send.dedup.map(|dedup| dedup.request(send.id, &send.event.name, moment.now));
    let outcome = match send.deliver_at.filter(|at| *at > moment.now) {
        Some(due_at) => deliver_later(&mut changes, machine, send.id, send.event, due_at),
        None => deliver(&mut changes, machine, standing, send.id, send.event, (send.reject_if_busy, send.inbox_limit), (moment, begins))?,
    };
    Ok(outcome.map(|outcome| Accepted { call: send.id, outcome, changes: Some(changes) }))
}

/// The first answer, if the caller's id names this very request; a conflict if it names another.
fn known_already(standing: &Standing, send: &Send) -> Result<Option<Accepted>, Refusal> {
    match (&standing.request, &send.dedup) {
        (Some(first), Some(dedup)) if first.dedup == dedup.id => {
            if !dedup.digests.contains(&first.digest) || first.event.as_ref() != Some(&send.event.name) {
                return Err(Refusal::Conflict { whose: whose(&standing.instance), dedup: dedup.id.clone() });
            }
            Ok(Some(Accepted { call: first.call, outcome: SendOutcome::Duplicate, changes: None }))
        }
        _ => Ok(None),
    }
}

fn deliver_later(changes: &mut Changes, machine: &Machine, call: CallId, event: Event, due_at: Timestamp) -> Result<SendOutcome, Refusal> {
    let instance = &changes.instance;
    // An instance that a delayed event creates is one that this event can start: it would wait for ever for another one.
    let can_start = || machine.edge(None, &event.name).is_some_and(|edge| edge.after.is_none());
    if instance.status.is_ended() || (changes.is_new && !can_start()) {
        return Err(Refusal::Unfit(Unfit::new(machine, instance, std::slice::from_ref(&instance.state), &event.name)));
    }
    changes.timers.push(TimerChange::Set(Timer { id: TimerId(call.0), instance: instance.id, state: None, event, due_at }));
    Ok(SendOutcome::Scheduled)
}

fn deliver(
    changes: &mut Changes,
    machine: &Machine,
    standing: &Standing,
    call: CallId,
    event: Event,
    (reject_if_busy, inbox_limit): (bool, u64),
    (moment, begins): (Moment, bool),
) -> Result<Result<SendOutcome, Refusal>, Unread> {
    let instance = &standing.instance;
    let refused = |after| Ok(Err(Refusal::Unfit(Unfit::new(machine, instance, after, &event.name))));
    if instance.status.is_ended() {
        return refused(std::slice::from_ref(&instance.state));
    }
    let after = inbox::foreseen(machine, standing)?;
    let fits_in = |state: &Option<String>| machine.edge(state.as_deref(), &event.name).is_some_and(|edge| edge.after.is_none());
    let may_fit = after.as_ref().map_or(machine.has_event(&event.name), |states| states.iter().any(fits_in));
    if !may_fit {
        return refused(after.as_deref().unwrap_or(std::slice::from_ref(&instance.state)));
    }
    let is_free = !instance.is_open && instance.status == Status::Running && instance.inbox_len() == 0;
    if let Some(edge) = machine.edge(instance.state.as_deref(), &event.name).filter(|_| is_free) {
        if begins {
            begin::call(changes, machine, edge, call, Payload::Bytes(event.payload), moment);
            return Ok(Ok(SendOutcome::Started));
        }
        changes.timers.push(TimerChange::Set(begin::wake(instance, &event.name, moment)));
        inbox::put(changes, machine, call, event, after, moment);
        return Ok(Ok(SendOutcome::Queued));
    }
    if reject_if_busy {
        return Ok(Err(Refusal::Busy { whose: whose(instance), why: what_it_does(standing) }));
    }
    if instance.inbox_len() >= inbox_limit {
        return Ok(Err(Refusal::Busy { whose: whose(instance), why: format!("its inbox is full with {inbox_limit} events") }));
    }
    inbox::put(changes, machine, call, event, after, moment);
    Ok(Ok(SendOutcome::Queued))
}

fn what_it_does(standing: &Standing) -> String {
    match &standing.newest {
        Some(newest) if standing.instance.is_open => format!("attempt {} of `{}` is {}", newest.number, newest.verb, newest.state),
        Some(newest) if standing.instance.status == Status::Error => format!("`{}` is exhausted and waits for an operator", newest.verb),
        _ if standing.instance.inbox_len() > 0 => "events wait in its inbox".to_owned(),
        _ => "its state is one that this process's code does not have".to_owned(),
    }
}
