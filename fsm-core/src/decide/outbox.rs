//! Events that verbs send to other instances: the receiver takes an event, refuses it, or has no room. An event without room waits in the
//! outbox, in the receiver's line, and is delivered later in its order.

use std::collections::HashMap;
use std::time::Duration;

use super::inbox::NeedsMoreRows;
use super::refusal::Refusal;
use super::send::{Accepted, Send, send};
use super::{DecisionContext, InstanceSnapshot};
use crate::changes::Changes;
use crate::ids::{CallId, InstanceId};
use crate::machine::Machine;

/// The outcome of an event that a verb sends to another instance.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// The receiver takes it.
    Taken(Box<Accepted>),
    /// The receiver has no room, or earlier events wait in its line. The event waits behind them.
    Waits,
    /// The receiver refuses it, and it is not tried again.
    Refused(Refusal),
}

/// Decides the outcome of an event at the moment at which it is sent. `has_line` says that other events wait in the receiver's line.
///
/// A delayed event never waits in the outbox: it waits for its time among the receiver's timers.
pub fn deliver(
    machine: &Machine,
    receiver: &InstanceSnapshot,
    request: Send,
    has_line: bool,
    moment: DecisionContext,
) -> Result<Delivery, NeedsMoreRows> {
    let is_delayed = request.deliver_at.is_some_and(|at| at > moment.now);
    if has_line && !is_delayed {
        return Ok(Delivery::Waits);
    }
    Ok(match send(machine, receiver, request, moment)? {
        Ok(accepted) => Delivery::Taken(Box::new(accepted)),
        Err(Refusal::Busy { .. }) => Delivery::Waits,
        Err(refusal) => Delivery::Refused(refusal),
    })
}

/// An event of a line after its delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    /// The event's call.
    pub call: CallId,
    /// The changes to the receiver, or the reason why it refuses the event.
    pub outcome: Result<Changes, Refusal>,
}

/// Decides the outcomes of several events for one receiver, in their order. All behind the first one that waits wait too.
pub fn deliver_in_order(
    machine: &Machine,
    receiver: &InstanceSnapshot,
    sends: impl IntoIterator<Item = Send>,
    mut has_line: bool,
    mut moment: impl FnMut() -> DecisionContext,
) -> Result<Vec<Delivery>, NeedsMoreRows> {
    let (mut receiver, mut deliveries) = (receiver.clone(), Vec::new());
    for request in sends {
        let delivery = deliver(machine, &receiver, request, has_line, moment())?;
        match &delivery {
            Delivery::Taken(accepted) => accepted.changes.iter().for_each(|changes| receiver.apply(changes.clone())),
            Delivery::Waits => has_line = true,
            Delivery::Refused(_) => {}
        }
        deliveries.push(delivery);
    }
    Ok(deliveries)
}

/// Delivers the events of a line in their order, up to the first one that finds no room, or that this definition does not have. That one
/// and all behind it stay in the line.
pub fn deliver_line(
    machine: &Machine,
    receiver: &InstanceSnapshot,
    line: impl IntoIterator<Item = Send>,
    moment: impl FnMut() -> DecisionContext,
) -> Result<Vec<Delivered>, NeedsMoreRows> {
    // A process whose code has the event judges it.
    let known: Vec<Send> = line.into_iter().take_while(|request| machine.has_event(&request.event.name)).collect();
    let calls: Vec<CallId> = known.iter().map(|request| request.id).collect();
    let deliveries = deliver_in_order(machine, receiver, known, false, moment)?;
    let delivered = calls.into_iter().zip(deliveries).map_while(|(call, delivery)| match delivery {
        // It has no deduplication id, so that it is no duplicate.
        Delivery::Taken(accepted) => Some(Delivered { call, outcome: Ok(accepted.changes?) }),
        Delivery::Refused(refusal) => Some(Delivered { call, outcome: Err(refusal) }),
        Delivery::Waits => None,
    });
    Ok(delivered.collect())
}

/// The wait before the first delivery of a line, and after a delivery that filled the inbox.
const SHORTEST: Duration = Duration::from_millis(20);
/// The longest wait between two deliveries to an inbox that stays full.
const LONGEST: Duration = Duration::from_secs(10);

/// The exponential backoff, from 20 ms to 10 s, before the next delivery of a line, after `tries` consecutive deliveries without room.
pub fn backoff(tries: u32) -> Duration {
    SHORTEST.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX)).min(LONGEST)
}

/// One event that a verb sends, with its receiver.
pub struct Outbound<'m> {
    /// The receiver's definition.
    pub machine: &'m Machine,
    /// The receiver as it is once the sender's own changes are written.
    pub receiver: InstanceSnapshot,
    /// The event.
    pub send: Send,
    /// A refusal fails the sender's attempt.
    pub is_required: bool,
}

/// The waiting events of this instance were not all read, and the decision needs more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxUnread(pub InstanceId);

/// Decides whether a receiver refuses a required event, and gives the first such refusal. An inbox without room refuses nothing.
pub fn refused_required<'m>(all: impl IntoIterator<Item = Outbound<'m>>, moment: DecisionContext) -> Result<Option<Refusal>, InboxUnread> {
    let mut receivers: HashMap<InstanceId, InstanceSnapshot> = HashMap::new();
    for Outbound { machine, receiver, send: request, is_required } in all {
        let id = receiver.instance.id;
        let receiver = receivers.entry(id).or_insert(receiver);
        match deliver(machine, receiver, request, false, moment).map_err(|_| InboxUnread(id))? {
            Delivery::Taken(accepted) => accepted.changes.into_iter().for_each(|changes| receiver.apply(changes)),
            Delivery::Refused(refusal) if is_required => return Ok(Some(refusal)),
            Delivery::Refused(_) | Delivery::Waits => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{begun, machine, moment, request, unborn};
    use super::*;

    fn with_limit(call: u128, event: &str, inbox_limit: u64) -> Send {
        Send { inbox_limit, ..request(call, event) }
    }

    #[test]
    fn an_event_that_finds_no_room_waits() {
        let machine = machine();
        assert_eq!(deliver(&machine, &begun(), with_limit(7, "Paid", 0), false, moment(1)), Ok(Delivery::Waits));
        let taken = deliver(&machine, &begun(), with_limit(7, "Paid", 1), false, moment(1)).unwrap();
        assert!(matches!(taken, Delivery::Taken(_)), "{taken:?}");
    }

    #[test]
    fn an_event_waits_behind_those_that_wait_although_there_is_room() {
        let machine = machine();
        assert_eq!(deliver(&machine, &begun(), with_limit(7, "Paid", 9), true, moment(1)), Ok(Delivery::Waits));
        let later = Send { deliver_at: Some(moment(1).now + Duration::from_secs(1)), ..with_limit(7, "Paid", 0) };
        let taken = deliver(&machine, &begun(), later, true, moment(1)).unwrap();
        assert!(matches!(taken, Delivery::Taken(_)), "a delayed event has a place of its own: {taken:?}");
    }

    #[test]
    fn a_line_is_delivered_in_its_order_as_far_as_there_is_room() {
        let machine = machine();
        let line = [with_limit(7, "Created", 1), with_limit(8, "Paid", 1), with_limit(9, "Completed", 1)];
        let delivered = deliver_line(&machine, &begun(), line, || moment(1)).unwrap();
        let calls: Vec<_> = delivered.iter().map(|one| (one.call.0.as_u128(), one.outcome.is_ok())).collect();
        // `Created` starts an instance, and no state of an existing one accepts it.
        assert_eq!(calls, [(7, false), (8, true)]);
    }

    #[test]
    fn only_a_required_event_fails_its_sender_and_only_by_a_refusal() {
        let machine = machine();
        let outbound =
            |receiver, call, event, is_required| Outbound { machine: &machine, receiver, send: with_limit(call, event, 0), is_required };
        assert_eq!(refused_required([outbound(unborn(), 7, "Paid", false)], moment(1)), Ok(None));
        assert_eq!(refused_required([outbound(begun(), 7, "Paid", true)], moment(1)), Ok(None), "it waits for room");
        let refused = refused_required([outbound(unborn(), 7, "Paid", true)], moment(1)).unwrap();
        assert!(matches!(refused, Some(Refusal::Unfit(_))), "{refused:?}");
    }

    #[test]
    fn the_wait_between_two_deliveries_grows_to_ten_seconds() {
        let waits: Vec<_> = [0, 1, 5, 9, 32, u32::MAX].map(|tries| backoff(tries).as_millis()).into();
        assert_eq!(waits, [20, 40, 640, 10_000, 10_000, 10_000]);
    }
}
