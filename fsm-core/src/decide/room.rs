//! Whether every event that a verb sends to other instances finds room in its receiver's inbox.

use std::collections::HashMap;

use super::refusal::Refusal;
use super::send::{Send, send};
use super::{DecisionContext, InstanceSnapshot};
use crate::ids::InstanceId;
use crate::machine::Machine;

/// One event that a verb sends.
pub struct Delivery<'m> {
    /// The receiver's definition.
    pub machine: &'m Machine,
    /// The receiver as it is once the sender's own changes are written.
    pub receiver: InstanceSnapshot,
    /// What is sent.
    pub send: Send,
}

/// The waiting events of this instance were not all read, and the decision needs more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxUnread(pub InstanceId);

/// Decides whether all of the events find room, one after the other. Gives the first refusal for lack of room, which fails the sender's
/// attempt: its transition must not be committed without an event that it sends. Every other refusal is final and is recorded as such.
pub fn no_room<'m>(deliveries: impl IntoIterator<Item = Delivery<'m>>, moment: DecisionContext) -> Result<Option<Refusal>, InboxUnread> {
    let mut receivers: HashMap<InstanceId, InstanceSnapshot> = HashMap::new();
    for Delivery { machine, receiver, send: request } in deliveries {
        let id = receiver.instance.id;
        let receiver = receivers.entry(id).or_insert(receiver);
        match send(machine, receiver, request, moment).map_err(|_| InboxUnread(id))? {
            Ok(accepted) => accepted.changes.into_iter().for_each(|changes| receiver.apply(changes)),
            Err(refusal @ Refusal::Busy { .. }) => return Ok(Some(refusal)),
            Err(_) => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{begun, machine, moment, request, unborn};
    use super::*;

    fn delivery<'m>(machine: &'m Machine, receiver: InstanceSnapshot, call: u128, event: &str, inbox_limit: u64) -> Delivery<'m> {
        Delivery { machine, receiver, send: Send { inbox_limit, ..request(call, event) } }
    }

    #[test]
    fn events_that_find_room_one_by_one_may_not_find_it_together() {
        let machine = machine();
        let busy = |call, event| delivery(&machine, begun(), call, event, 1);
        assert_eq!(no_room([busy(7, "Paid")], moment(1)), Ok(None));
        let refused = no_room([busy(7, "Paid"), busy(8, "Completed")], moment(1)).unwrap().expect("there is room for one event only");
        assert!(refused.to_string().ends_with("its inbox is full with 1 events"), "{refused}");
    }

    #[test]
    fn an_event_that_is_refused_for_good_does_not_fail_its_sender() {
        let machine = machine();
        assert_eq!(no_room([delivery(&machine, unborn(), 7, "Paid", 0)], moment(1)), Ok(None));
    }

    #[test]
    fn an_event_that_begins_at_once_needs_no_room() {
        let machine = machine();
        assert_eq!(no_room([delivery(&machine, unborn(), 7, "Created", 0)], moment(1)), Ok(None));
    }
}
