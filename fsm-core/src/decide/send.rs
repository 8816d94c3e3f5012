//! Sends: an event starts a transition, waits in the inbox, is delivered later, is a duplicate, or is refused.

use super::inbox::NeedsMoreRows;
use super::refusal::{Refusal, Unfit, whose};
use super::{DecisionContext, InstanceSnapshot, begin, forecast, interrupt, waiting};
use crate::changes::{Changes, Payload, Request, Timer, TimerChange};
use crate::ids::{CallId, TimerId};
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine};
use crate::outcome::Event;
use crate::priority::Priority;
use crate::search::SearchField;
use crate::time::Timestamp;

/// A request to deliver an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    /// The id of the call that the event becomes. The client creates it, so that a repeated request can be recognised.
    pub id: CallId,
    /// The event.
    pub event: Event,
    /// The caller's deduplication id and the digests of the payload.
    pub dedup: Option<Dedup>,
    /// The earliest delivery; `None` for immediate delivery.
    pub deliver_at: Option<Timestamp>,
    /// Refuses the event instead of putting it into the inbox if the instance is busy.
    pub reject_if_busy: bool,
    /// The maximum number of events in the inbox.
    pub inbox_limit: u64,
    /// The search fields of the instance if the event creates it.
    pub search: Vec<SearchField>,
    /// The priority of the call. It is no part of the content that a deduplication id stands for.
    pub priority: Priority,
}

/// The caller's id for a request, with digests that identify the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The id, unique within the instance.
    pub id: String,
    /// Digests of the payload, one for each key of the codec. The first one is stored. A stored digest that equals any of them means the
    /// same content, so that keys can be changed.
    pub digests: Vec<Vec<u8>>,
}

/// The outcome of an accepted send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendOutcome {
    /// The transition has started: its call executes or is scheduled.
    Started,
    /// It waits in the inbox: the instance is busy, or the process that sent it may begin no call (PostgreSQL's role `fsm_sender`), and a
    /// worker takes it.
    Queued,
    /// The event is delivered at the requested time.
    Scheduled,
    /// The same request was sent before. Nothing changed.
    Duplicate,
}

/// The answer to an accepted send.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The id of the call that the event became or will become.
    pub call: CallId,
    /// The outcome.
    pub outcome: SendOutcome,
    /// The changes to write; `None` for a duplicate.
    pub changes: Option<Changes>,
}

impl Send {
    /// A send that is delivered at once, without a deduplication id and without search fields, with a normal priority.
    pub fn new(id: CallId, event: Event, inbox_limit: u64) -> Send {
        Send {
            id,
            event,
            dedup: None,
            deliver_at: None,
            reject_if_busy: false,
            inbox_limit,
            search: Vec::new(),
            priority: Priority::Normal,
        }
    }
}

impl Dedup {
    fn request(self, call: CallId, event: &str, at: Timestamp) -> Request {
        let digest = self.digests.into_iter().next().unwrap_or_default();
        Request { dedup: self.id, event: Some(event.to_owned()), digest, call, at }
    }
}

/// An event that arrives at an instance now, with the options of its send.
struct Arrival {
    call: (CallId, Priority),
    event: Event,
    reject_if_busy: bool,
    inbox_limit: u64,
    /// False for a process that may begin no call.
    begins: bool,
}

/// The answer to a send.
pub type Answer = Result<Accepted, Refusal>;

/// Decides the outcome of a send.
///
/// An event on an edge that interrupts is taken at once, or when the executing attempt has ended. Any other event is refused if it fits no
/// state that is reachable after the waiting events. An ended instance refuses every event. A delayed event to an instance that does not
/// exist is refused if it cannot start one. An event that this definition cannot judge, because it lacks the state of the instance, waits
/// for a process that can.
pub fn send(machine: &Machine, snapshot: &InstanceSnapshot, send: Send, moment: DecisionContext) -> Result<Answer, NeedsMoreRows> {
    answer(machine, snapshot, send, moment, true)
}

/// The same for a process that may begin no call: an event that could begin one waits in the inbox, and a worker is called to take it.
pub fn put(machine: &Machine, snapshot: &InstanceSnapshot, send: Send, moment: DecisionContext) -> Result<Answer, NeedsMoreRows> {
    answer(machine, snapshot, send, moment, false)
}

fn answer(
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    send: Send,
    moment: DecisionContext,
    begins: bool,
) -> Result<Answer, NeedsMoreRows> {
    match known_already(snapshot, &send) {
        Ok(None) => accept(machine, snapshot, send, moment, begins),
        Ok(Some(duplicate)) => Ok(Ok(duplicate)),
        Err(refusal) => Ok(Err(refusal)),
    }
}

fn accept(
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    send: Send,
    moment: DecisionContext,
    begins: bool,
) -> Result<Answer, NeedsMoreRows> {
    let InstanceSnapshot { instance, is_new, .. } = snapshot;
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(instance) });
    changes.is_new = *is_new;
    if *is_new {
        changes.instance.fair_by = machine.first_fair_value(&send.search);
        changes.search = send.search;
    }
    changes.request = send.dedup.map(|dedup| dedup.request(send.id, &send.event.name, moment.now));
    let outcome = match send.deliver_at.filter(|at| *at > moment.now) {
        Some(due_at) => deliver_later(&mut changes, machine, (send.id, send.priority), send.event, due_at),
        None => {
            let Send { event, reject_if_busy, inbox_limit, .. } = send;
            let arrival = Arrival { call: (send.id, send.priority), event, reject_if_busy, inbox_limit, begins };
            deliver(&mut changes, machine, snapshot, arrival, moment)?
        }
    };
    Ok(outcome.map(|outcome| Accepted { call: send.id, outcome, changes: Some(changes) }))
}

/// Returns the first answer if the deduplication id belongs to this same request, and a conflict if it belongs to another one.
fn known_already(snapshot: &InstanceSnapshot, send: &Send) -> Result<Option<Accepted>, Refusal> {
    match (&snapshot.request, &send.dedup) {
        (Some(first), Some(dedup)) if first.dedup == dedup.id => {
            if !dedup.digests.contains(&first.digest) || first.event.as_ref() != Some(&send.event.name) {
                return Err(Refusal::Conflict { whose: whose(&snapshot.instance), dedup: dedup.id.clone() });
            }
            Ok(Some(Accepted { call: first.call, outcome: SendOutcome::Duplicate, changes: None }))
        }
        _ => Ok(None),
    }
}

fn deliver_later(
    changes: &mut Changes,
    machine: &Machine,
    (call, priority): (CallId, Priority),
    event: Event,
    due_at: Timestamp,
) -> Result<SendOutcome, Refusal> {
    let instance = &changes.instance;
    // A delayed event may create an instance only if it can start one. Otherwise the instance would wait forever for another event.
    let can_start = || machine.edge(None, &event.name).is_some_and(Edge::is_sent);
    if instance.status.is_ended() || (changes.is_new && !can_start()) {
        return Err(Refusal::Unfit(Unfit::new(machine, instance, std::slice::from_ref(&instance.state), &event.name)));
    }
    changes.timers.push(TimerChange::Set(Timer { id: TimerId(call.0), instance: instance.id, state: None, event, due_at, priority }));
    Ok(SendOutcome::Scheduled)
}

fn deliver(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    arrival: Arrival,
    moment: DecisionContext,
) -> Result<Result<SendOutcome, Refusal>, NeedsMoreRows> {
    let instance = &snapshot.instance;
    let unfit = |after, event: &Event| Ok(Err(Refusal::Unfit(Unfit::new(machine, instance, after, &event.name))));
    if instance.status.is_ended() {
        return unfit(std::slice::from_ref(&instance.state), &arrival.event);
    }
    if let Some(edge) = interrupt::edge(machine, instance, &arrival.event.name) {
        return deliver_interrupting(changes, machine, snapshot, edge, arrival, moment);
    }
    let Arrival { call, event, reject_if_busy, inbox_limit, begins } = arrival;
    let after = forecast::foreseen(machine, snapshot)?;
    let fits_in = |state: &Option<String>| machine.edge(state.as_deref(), &event.name).is_some_and(Edge::is_sent);
    let may_fit = after.as_ref().map_or(machine.has_event(&event.name), |states| states.iter().any(fits_in));
    if !may_fit {
        return unfit(after.as_deref().unwrap_or(std::slice::from_ref(&instance.state)), &event);
    }
    let is_free = !instance.is_open && instance.status == Status::Running && instance.inbox_len() == 0;
    if let Some(edge) = machine.edge(instance.state.as_deref(), &event.name).filter(|_| is_free) {
        if begins {
            begin::call_with(changes, machine, edge, call, Payload::Bytes(event.payload), moment);
            return Ok(Ok(SendOutcome::Started));
        }
        changes.timers.push(TimerChange::Set(begin::wake(instance, &event.name, moment)));
        waiting::put(changes, machine, call, event, after, moment);
        return Ok(Ok(SendOutcome::Queued));
    }
    if reject_if_busy {
        return Ok(Err(busy(snapshot)));
    }
    if instance.inbox_len() >= inbox_limit {
        return Ok(Err(full(instance, inbox_limit)));
    }
    waiting::put(changes, machine, call, event, after, moment);
    Ok(Ok(SendOutcome::Queued))
}

/// Decides the arrival of an event that interrupts. While an attempt executes, the event waits in front of the others. Otherwise the call
/// ends as cancelled, and the event is taken.
fn deliver_interrupting(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    edge: &Edge,
    arrival: Arrival,
    moment: DecisionContext,
) -> Result<Result<SendOutcome, Refusal>, NeedsMoreRows> {
    let is_executing = snapshot.instance.is_open && interrupt::open_attempt(snapshot).is_none();
    if is_executing && arrival.reject_if_busy {
        return Ok(Err(busy(snapshot)));
    }
    if !is_executing && arrival.begins {
        let moment = interrupt::close(changes, snapshot, &arrival.event.name, moment);
        begin::call_with(changes, machine, edge, arrival.call, Payload::Bytes(arrival.event.payload), moment);
        forecast::follow(changes, machine, snapshot);
        return Ok(Ok(SendOutcome::Started));
    }
    let instance = &snapshot.instance;
    let first = snapshot.inbox.first.first();
    if instance.inbox_len() > 0 && first.is_none() {
        return Err(NeedsMoreRows);
    }
    // Of several events that interrupt, the first one goes in front, so that they keep their order.
    let is_first = first.is_none_or(|first| interrupt::edge(machine, instance, &first.event).is_none());
    if !is_first && instance.inbox_len() >= arrival.inbox_limit {
        return Ok(Err(full(instance, arrival.inbox_limit)));
    }
    if !is_executing {
        changes.timers.push(TimerChange::Set(begin::wake(instance, &arrival.event.name, moment)));
    }
    // A process that may begin no call may not write the position of the first event either.
    match is_first && arrival.begins && instance.inbox_len() > 0 {
        true => waiting::put_in_front(changes, arrival.call, arrival.event),
        false => waiting::put(changes, machine, arrival.call, arrival.event, forecast::foreseen(machine, snapshot)?, moment),
    }
    Ok(Ok(SendOutcome::Queued))
}

/// The refusal of an event that does not wait.
fn busy(snapshot: &InstanceSnapshot) -> Refusal {
    Refusal::Busy { whose: whose(&snapshot.instance), why: what_it_does(snapshot) }
}

/// The refusal of an event for which the inbox has no room.
fn full(instance: &Instance, inbox_limit: u64) -> Refusal {
    Refusal::Busy { whose: whose(instance), why: format!("its inbox is full with {inbox_limit} events") }
}

fn what_it_does(snapshot: &InstanceSnapshot) -> String {
    match &snapshot.newest {
        Some(newest) if snapshot.instance.is_open => format!("attempt {} of `{}` is {}", newest.number, newest.verb, newest.state),
        Some(newest) if snapshot.instance.status == Status::Error => format!("`{}` is exhausted and waits for an operator", newest.verb),
        _ if snapshot.instance.inbox_len() > 0 => "events wait in its inbox".to_owned(),
        _ => "its state is one that this process's code does not have".to_owned(),
    }
}
