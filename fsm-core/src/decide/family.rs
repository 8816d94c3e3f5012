//! Children: their start with the parent's transition, the end of all of a group, and their cancellation with the parent.

use super::begin::{self, note};
use super::refusal::{Refusal, Unfit, whose};
use super::{DecisionContext, InstanceSnapshot, forecast};
use crate::changes::{Changes, NoteKind, Payload};
use crate::family::{Family, Link};
use crate::instance::{Instance, Status};
use crate::machine::{CHILDREN_ENDED, Machine};
use crate::outcome::Child;
use crate::time::Timestamp;

/// The outcome of the start of a child.
#[derive(Debug, Clone, PartialEq)]
pub enum Started {
    /// The child is created.
    New(Box<Changes>),
    /// The parent has started this child in the same state before. Nothing changes.
    Same,
    /// The child cannot be started, so that the parent's attempt fails.
    Refused(Refusal),
}

/// Decides the start of a child. `snapshot` is that of the child's key, and `machine` the child's machine.
pub fn start(machine: &Machine, snapshot: &InstanceSnapshot, child: &Child, link: Link, moment: DecisionContext) -> Started {
    let instance = &snapshot.instance;
    if !snapshot.is_new {
        let why = "an instance with this key exists already, and this state did not start it as a child".to_owned();
        let taken = Refusal::NotAllowed { whose: whose(instance), asked: "started", why };
        let is_its_own = instance.parent.is_some_and(|parent| parent.is_in_group_of(link.parent));
        return if is_its_own { Started::Same } else { Started::Refused(taken) };
    }
    let Some(edge) = machine.edge(None, &child.event.name).filter(|edge| edge.is_sent()) else {
        return Started::Refused(Refusal::Unfit(Unfit::new(machine, instance, &[None], &child.event.name)));
    };
    let fair_by = machine.first_fair_value(&child.search);
    let new = Instance { parent: Some(link.parent), updated_at: moment.now, fair_by, ..Instance::clone(instance) };
    let mut changes = Changes { is_new: true, link: Some(Box::new(link)), search: child.search.clone(), ..Changes::of(new) };
    begin::call_with(&mut changes, machine, edge, (child.id, child.priority), Payload::Bytes(child.event.payload.clone()), moment);
    Started::New(Box::new(changes))
}

/// Decides what follows once all children of the open group have ended. An instance at rest takes the event at once. A busy one takes it
/// when it comes to rest in the same state, after the events of its inbox. `None` if there is nothing to change, because the instance waits
/// for no children, or no edge of this definition accepts the event.
pub fn all_ended(machine: &Machine, snapshot: &InstanceSnapshot, moment: DecisionContext) -> Option<Changes> {
    let instance = &snapshot.instance;
    let group = instance.family.group().filter(|_| awaits_children(machine, instance))?;
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(instance) });
    changes.instance.family = Family::Ended(group);
    if instance.inbox_len() == 0 {
        take(&mut changes, machine, moment);
        forecast::follow(&mut changes, machine, snapshot);
    }
    (changes.instance.family != instance.family).then_some(changes)
}

/// True if the instance waits in its state for the end of its children.
pub fn awaits_children(machine: &Machine, instance: &Instance) -> bool {
    let is_accepted = || machine.edge(instance.state.as_deref(), CHILDREN_ENDED).is_some();
    instance.family.group().is_some() && !instance.status.is_ended() && is_accepted()
}

/// Decides what follows once all children of a cancelled instance are cancelled, except the detached ones.
pub fn all_cancelled(snapshot: &InstanceSnapshot) -> Option<Changes> {
    let instance = &snapshot.instance;
    if instance.family != Family::Cancelling {
        return None;
    }
    let mut changes = Changes::of(Instance::clone(instance));
    changes.instance.family = Family::Past;
    Some(changes)
}

/// Lets an instance that is at rest take the end of its children, if all have ended and an edge accepts it.
pub(super) fn take(changes: &mut Changes, machine: &Machine, moment: DecisionContext) {
    let instance = &changes.instance;
    let Family::Ended(group) = instance.family else { return };
    if instance.status != Status::Running || instance.is_open {
        return;
    }
    let Some(edge) = machine.edge(instance.state.as_deref(), CHILDREN_ENDED) else { return };
    let payload = ended_in(&edge.from, group);
    changes.instance.family = Family::Past;
    begin::call(changes, machine, edge, moment.fresh, Payload::Bytes(payload), moment);
}

/// The payload of the event. The worker adds the counts when it runs the verb.
fn ended_in(state: &Option<String>, group: i64) -> Vec<u8> {
    format!(r#"{{"state":"{}","group":{group}}}"#, state.as_deref().unwrap_or_default()).into_bytes()
}

/// Adds the children that a successful verb starts to the group of the present state, or begins a group.
pub(super) fn open_group(changes: &mut Changes) {
    let group = changes.instance.family.group().unwrap_or(changes.instance.version);
    changes.instance.family = Family::Open(group);
}

/// Ends the wait for children, because the instance leaves its state. If they have not all ended, the history records it.
pub(super) fn leave_state(changes: &mut Changes, machine: &Machine, left: Option<&str>, now: Timestamp) {
    let awaits = machine.edge(left, CHILDREN_ENDED).is_some();
    if let (Family::Open(_), true, Some(left)) = (changes.instance.family, awaits, left) {
        let detail = format!("`{left}` was left before the children that were started there were known to have ended");
        changes.notes.push(note(&changes.instance, NoteKind::Left, None, Some(detail), now));
    }
    if changes.instance.family != Family::None {
        changes.instance.family = Family::Past;
    }
}

/// Has the children cancelled, because the instance is cancelled.
pub(super) fn cancel(changes: &mut Changes) {
    if changes.instance.family != Family::None {
        changes.instance.family = Family::Cancelling;
    }
}
