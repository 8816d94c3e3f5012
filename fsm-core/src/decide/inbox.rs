//! What waits for an instance, as far as it was read, and what is foreseen of it: no decision needs the whole inbox but one that empties it.

use super::{Moment, Standing, begin};
use crate::call::Attempt;
use crate::changes::{Changes, NoteKind, Outlook, Payload, TimerChange, Waiting, Waits};
use crate::decide::refusal::Unfit;
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::outcome::Event;

/// What is known of the events that wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inbox {
    /// The first of them in order: all, or as many as were read.
    pub first: Vec<Waiting>,
    /// Where the last of them leads, as it was foreseen when it came.
    pub outlook: Option<Outlook>,
}

/// The decision needs more of the waiting events than were read. Once more of them are, it is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unread;

/// States that an instance can be in; `None` in it is its beginning.
type States = Vec<Option<String>>;

impl From<Vec<Waiting>> for Inbox {
    /// The whole of it, in order, with nothing foreseen.
    fn from(first: Vec<Waiting>) -> Inbox {
        Inbox { first, outlook: None }
    }
}

impl Inbox {
    /// What was written becomes what is known.
    pub fn apply(&mut self, changes: &Changes) {
        if let Some(taken) = &changes.inbox_taken {
            self.first.retain(|waiting| waiting.position >= taken.end);
        }
        if changes.is_outlook_lost {
            self.outlook = None;
        }
        if let Some(waits) = &changes.waits {
            // What follows a gap was not read.
            let is_next = self.first.last().map_or(changes.instance.inbox_head, |last| last.position + 1) == waits.position;
            if is_next {
                self.first.push(Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() });
            }
            self.outlook.clone_from(&waits.outlook);
        }
    }
}

/// The instance is free: it takes the first waiting event that fits and rejects those before it. An ended one rejects all.
///
/// What this definition cannot judge it leaves where it is, for a process that can, and all behind it with it.
pub(super) fn take(changes: &mut Changes, machine: &Machine, inbox: &Inbox, moment: Moment) -> Result<(), Unread> {
    let head = changes.instance.inbox_head;
    for waiting in inbox.first.iter().skip_while(|waiting| waiting.position < head) {
        let is_running = changes.instance.status == Status::Running;
        if is_running && !can_judge(machine, &changes.instance, &waiting.event) {
            changes.timers.push(TimerChange::Set(begin::wake(&changes.instance, &waiting.event, moment)));
            return Ok(());
        }
        changes.instance.inbox_head = waiting.position + 1;
        changes.inbox_taken = Some(head..changes.instance.inbox_head);
        // A timer never waits here: an event that bears its name was put by somebody who may not run it out.
        let edge = machine.edge(changes.instance.state.as_deref(), &waiting.event).filter(|edge| is_running && edge.after.is_none());
        if let Some(edge) = edge {
            begin::call(changes, machine, edge, waiting.call, Payload::Inbox(waiting.position), moment);
            return Ok(());
        }
        let unfit = Unfit::new(machine, &changes.instance, std::slice::from_ref(&changes.instance.state), &waiting.event);
        let note = begin::note(&changes.instance, NoteKind::Rejected, Some(waiting.call), Some(unfit.to_string()), moment.now);
        changes.notes.push(note);
    }
    if changes.instance.inbox_len() == 0 { Ok(()) } else { Err(Unread) }
}

/// Whether this definition has the event and the instance's state: another's it does not judge.
fn can_judge(machine: &Machine, instance: &Instance, event: &str) -> bool {
    machine.has_event(event) && instance.state.as_ref().is_none_or(|state| machine.has_state(state))
}

/// The event joins the end of the inbox. Where the instance rests and this definition cannot judge it, a process that can is called.
pub(super) fn put(changes: &mut Changes, machine: &Machine, call: CallId, event: Event, after: Option<States>, moment: Moment) {
    let instance = &changes.instance;
    let is_free = instance.status == Status::Running && !instance.is_open && instance.inbox_len() == 0;
    if is_free && !can_judge(machine, instance, &event.name) {
        changes.timers.push(TimerChange::Set(begin::wake(instance, &event.name, moment)));
    }
    let outlook = after.and_then(|states| led(machine, states, &event.name)).map(|states| Outlook { graph: machine.graph(), states });
    let position = instance.inbox_tail;
    changes.instance.inbox_tail = position + 1;
    changes.waits = Some(Waits { position, call, event, outlook });
}

/// The states the instance can be in once its open call and all that waits have had their turn; `None` where this definition cannot tell.
///
/// What was foreseen when the last event came still holds, or it was struck out; only if it was struck out, or foreseen by another graph,
/// all that waits is read.
pub(super) fn foreseen(machine: &Machine, standing: &Standing) -> Result<Option<States>, Unread> {
    let Standing { instance, inbox, .. } = standing;
    if instance.inbox_len() > 0
        && let Some(outlook) = inbox.outlook.as_ref().filter(|outlook| outlook.graph == machine.graph())
    {
        return Ok(Some(outlook.states.clone()));
    }
    if (inbox.first.len() as u64) < instance.inbox_len() {
        return Err(Unread);
    }
    let at_first = before(instance, standing.newest.as_deref());
    let states = inbox.first.iter().try_fold(at_first, |states, waiting| led(machine, states, &waiting.event));
    Ok(states.filter(|states| all_known(machine, states)))
}

/// What was foreseen of the events that still wait holds, unless these changes lead them to another state than they were put for.
///
/// Most ways join after a few events. Where they have not joined within what was read, the next who sends looks again.
pub(super) fn follow(changes: &mut Changes, machine: &Machine, standing: &Standing) {
    if changes.instance.inbox_len() == 0 || changes.waits.is_some() {
        return;
    }
    // What another graph foresaw is not followed by this one.
    if standing.inbox.outlook.as_ref().is_some_and(|outlook| outlook.graph != machine.graph()) {
        changes.is_outlook_lost = true;
        return;
    }
    let newest = changes.open.as_ref().map(|open| &*open.attempt).or(standing.newest.as_deref());
    let is_taken = |waiting: &&Waiting| waiting.position < changes.instance.inbox_head;
    let taken = standing.inbox.first.iter().take_while(is_taken);
    let mut was =
        taken.clone().try_fold(before(&standing.instance, standing.newest.as_deref()), |states, w| led(machine, states, &w.event));
    let mut is = Some(before(&changes.instance, newest));
    let mut left = standing.inbox.first.iter().skip(taken.count());
    while was != is || is.is_none() {
        let (Some(waiting), Some(_), Some(_)) = (left.next(), &was, &is) else {
            changes.is_outlook_lost = true;
            return;
        };
        was = was.and_then(|states| led(machine, states, &waiting.event));
        is = is.and_then(|states| led(machine, states, &waiting.event));
    }
}

/// The states the instance can be in once its open call has had its turn. Usually one; two for an exhausted call, which may yet succeed or
/// be skipped, also while it is caught.
fn before(instance: &Instance, newest: Option<&Attempt>) -> States {
    let mut states = vec![instance.state.clone()];
    match newest {
        Some(newest) if instance.is_open && !newest.is_catch() => states = vec![Some(newest.to.clone())],
        Some(newest) if instance.is_open || instance.status == Status::Error => states.push(Some(newest.to.clone())),
        _ => {}
    }
    tidy(states)
}

/// Where an event leads from each of the states; `None` where this definition cannot tell.
fn led(machine: &Machine, states: States, event: &str) -> Option<States> {
    if !machine.has_event(event) || !all_known(machine, &states) {
        return None;
    }
    let lead = |state: Option<String>| match machine.edge(state.as_deref(), event) {
        Some(edge) => Some(edge.to.clone()),
        None => state,
    };
    Some(tidy(states.into_iter().map(lead).collect()))
}

fn all_known(machine: &Machine, states: &States) -> bool {
    states.iter().flatten().all(|state| machine.has_state(state))
}

fn tidy(mut states: States) -> States {
    states.sort();
    states.dedup();
    states
}
