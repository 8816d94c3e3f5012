//! An event arrives: it begins a transition, waits its turn, waits for its time, is known already, or is refused.

use super::refusal::{Refusal, Unfit, whose};
use super::{Moment, Standing, begin};
use crate::changes::{Changes, Payload, Request, Timer, TimerChange, Waits};
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
    /// The caller's own id for the request.
    pub dedup: Option<Dedup>,
    /// Not before this moment.
    pub deliver_at: Option<Timestamp>,
    /// Refuse instead of waiting when the instance is busy.
    pub or_refuse: bool,
    /// How many events may wait.
    pub inbox_limit: u64,
}

/// The caller's own id for a request, and by what its content is known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The id, unique within the instance.
    pub id: String,
    /// Digests of event type and payload. The first is kept, and any of them is the same content: keys of digests change.
    pub digests: Vec<Vec<u8>>,
}

/// What became of a sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Its transition has begun.
    Started,
    /// The instance is busy: it waits in the inbox.
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
    pub fate: Fate,
    /// What is to be written; `None` for a duplicate.
    pub changes: Option<Changes>,
}

impl Dedup {
    fn request(&self, call: CallId) -> Request {
        Request { dedup: self.id.clone(), digest: self.digests.first().cloned().unwrap_or_default(), call }
    }
}

/// Decides what becomes of an event.
///
/// An event that fits no state the instance can be in once all before it succeeded is refused; so is every event to an
/// ended instance.
pub fn send(machine: &Machine, standing: Standing, send: Send, moment: Moment) -> Result<Accepted, Refusal> {
    if let Some(duplicate) = known_already(&standing, &send)? {
        return Ok(duplicate);
    }
    let Standing { instance, is_new, .. } = &standing;
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..instance.clone() });
    changes.is_new = *is_new;
    changes.request = send.dedup.as_ref().map(|dedup| dedup.request(send.id));
    let fate = match send.deliver_at.filter(|at| *at > moment.now) {
        Some(due_at) => deliver_later(&mut changes, machine, send.id, send.event, due_at)?,
        None => deliver(&mut changes, machine, &standing, send.id, send.event, (send.or_refuse, send.inbox_limit), moment)?,
    };
    Ok(Accepted { call: standing.request.map_or(send.id, |first| first.call), fate, changes: Some(changes) })
}

/// The first answer, if the caller's id names this very request; a conflict if it names another.
fn known_already(standing: &Standing, send: &Send) -> Result<Option<Accepted>, Refusal> {
    match (&standing.request, &send.dedup) {
        (Some(first), Some(dedup)) if first.dedup == dedup.id => {
            if !dedup.digests.contains(&first.digest) {
                return Err(Refusal::Conflict { whose: whose(&standing.instance), dedup: dedup.id.clone() });
            }
            Ok(Some(Accepted { call: first.call, fate: Fate::Duplicate, changes: None }))
        }
        _ => Ok(None),
    }
}

fn deliver_later(changes: &mut Changes, machine: &Machine, call: CallId, event: Event, due_at: Timestamp) -> Result<Fate, Refusal> {
    let instance = &changes.instance;
    if instance.status.is_ended() {
        return Err(Refusal::Unfit(Unfit::new(machine, instance, std::slice::from_ref(&instance.state), &event.name)));
    }
    changes.timers.push(TimerChange::Set(Timer { id: TimerId(call.0), instance: instance.id, state: None, event, due_at }));
    Ok(Fate::Scheduled)
}

fn deliver(
    changes: &mut Changes,
    machine: &Machine,
    standing: &Standing,
    call: CallId,
    event: Event,
    (or_refuse, inbox_limit): (bool, u64),
    moment: Moment,
) -> Result<Fate, Refusal> {
    let instance = &standing.instance;
    let after = states_after(machine, standing);
    let fits = after.iter().any(|state| machine.edge(state.as_deref(), &event.name).is_some_and(|edge| edge.after.is_none()));
    if instance.status.is_ended() || !fits {
        return Err(Refusal::Unfit(Unfit::new(machine, instance, &after, &event.name)));
    }
    if !instance.is_open && instance.status == Status::Running && standing.inbox.is_empty() {
        let edge =
            machine.edge(instance.state.as_deref(), &event.name).expect("a free instance has one state after, and the event fits it");
        begin::call(changes, machine, edge, call, Payload::Bytes(event.payload), moment);
        return Ok(Fate::Started);
    }
    if or_refuse {
        return Err(Refusal::Busy { whose: whose(instance), why: what_it_does(standing) });
    }
    if instance.inbox_len() >= inbox_limit {
        return Err(Refusal::Busy { whose: whose(instance), why: format!("its inbox is full with {inbox_limit} events") });
    }
    put_in_inbox(changes, call, event);
    Ok(Fate::Queued)
}

/// The event joins the end of the inbox.
pub(super) fn put_in_inbox(changes: &mut Changes, call: CallId, event: Event) {
    let position = changes.instance.inbox_tail;
    changes.instance.inbox_tail = position + 1;
    changes.waits = Some(Waits { position, call, event });
}

/// The states the instance can be in once its open call and all that waits have had their turn. Usually one; two for an
/// instance in error, whose exhausted call may yet succeed or be skipped.
fn states_after(machine: &Machine, standing: &Standing) -> Vec<Option<String>> {
    let instance = &standing.instance;
    let mut states = vec![instance.state.clone()];
    if let Some(newest) = &standing.newest {
        if instance.is_open {
            states = vec![Some(newest.to.clone())];
        } else if instance.status == Status::Error && instance.state.as_ref() != Some(&newest.to) {
            states.push(Some(newest.to.clone()));
        }
    }
    for waiting in &standing.inbox {
        for state in &mut states {
            if let Some(edge) = machine.edge(state.as_deref(), &waiting.event) {
                *state = Some(edge.to.clone());
            }
        }
        states.dedup();
    }
    states
}

fn what_it_does(standing: &Standing) -> String {
    match &standing.newest {
        Some(newest) if standing.instance.is_open => format!("attempt {} of `{}` is {}", newest.number, newest.verb, newest.state),
        Some(newest) => format!("`{}` is exhausted and waits for an operator", newest.verb),
        None => "events wait in its inbox".to_owned(),
    }
}
