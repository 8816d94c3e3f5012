//! The requests of a verb: the instance's next event, and events to other instances.

use std::any::TypeId;
use std::time::{Duration, SystemTime};

use fsm_core::ids::CallId;
use fsm_core::outcome::{Event, Outgoing, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::Ctx;
use crate::encode;
use crate::error::Error;
use crate::registry::{EventFor, Machine, TakesNext, VerbOf};
use crate::search;

impl<V> Ctx<'_, V> {
    /// Sets the event that this instance takes right after the transition, before the events in its inbox. Each attempt can set one.
    ///
    /// Returns an error if the state that this verb enters has no edge that accepts the event, or if an event was already set. For a catch verb
    /// and an internal transition, it is the state that the instance is in. In a verb that takes `&mut Ctx<'_, itself>`, the compiler rejects an event
    /// that no edge accepts, and lists the accepted ones.
    pub fn next<M, E>(&mut self, event: E) -> Result<(), Error>
    where
        E: Serialize + 'static,
        V: VerbOf<M> + TakesNext<M, E>,
    {
        if self.running.verb_requests.next.is_some() {
            return Err(Error::input(format!("`{}` has asked for its next event already: one an attempt", self.running.attempt.verb)));
        }
        let machine = &self.running.environment.machine;
        // A catch verb makes no transition, so its next event must fit the state that the instance is in.
        let state =
            if self.running.attempt.is_catch() { self.running.attempt.from.as_deref() } else { Some(self.running.attempt.to.as_str()) };
        let name = self.running.environment.event_name(TypeId::of::<E>());
        let fits = name.is_some_and(|name| machine.edge(state, name).is_some_and(|edge| edge.after.is_none()));
        let Some(name) = name.filter(|_| fits) else {
            let accepted: Vec<_> = machine.accepts(state).map(|name| format!("`{name}`")).collect();
            let accepted = if accepted.is_empty() { "no events".to_owned() } else { accepted.join(", ") };
            let (asked, at) = (std::any::type_name::<E>(), state.map_or("at its beginning".to_owned(), |state| format!("in `{state}`")));
            return Err(Error::input(format!("`{}` {at} takes {accepted}, not `{asked}`", self.running.attempt.machine)));
        };
        let payload = encode::payload(&event, name, self.running.environment.limits.payload)?;
        self.running.verb_requests.next = Some(Event { name: name.to_owned(), payload });
        Ok(())
    }

    /// Sends an event to another instance when this transition is committed; nothing is sent if the attempt fails.
    ///
    /// The event is never lost for lack of room: if the receiver's inbox is full, it waits in the outbox and is delivered when there is
    /// room. The events from this instance to one receiver are delivered in their order, each exactly once.
    ///
    /// If the receiver refuses the event, because it has ended or no state that it can reach accepts the event, the transition is committed
    /// all the same. The refusal is recorded in the histories of both instances and listed by `fsm errors --rejected`.
    /// [`required`](OutgoingEvent::required) changes that.
    ///
    /// An error if the key or the payload is too long, or this program has no such machine.
    pub fn send<M: Machine>(&mut self, key: impl AsRef<str>, event: impl EventFor<M>) -> Result<OutgoingEvent<'_>, Error> {
        self.outgoing(key.as_ref(), event)
    }

    /// Cancels a delayed send when this transition is committed. `send` is the id that [`OutgoingEvent::after`] returned, in this attempt or in
    /// an earlier verb of any instance.
    ///
    /// If the event was delivered before, it stays delivered, and nothing else happens. The history of this instance records which of the two
    /// it was.
    pub fn unsend(&mut self, send: CallId) {
        let VerbRequests { sends, unsends, .. } = &mut self.running.verb_requests;
        let before = sends.len();
        sends.retain(|outgoing| outgoing.id != send || outgoing.deliver_at.is_none());
        if sends.len() == before && !unsends.contains(&send) {
            unsends.push(send);
        }
    }

    fn outgoing<M: Machine, E: EventFor<M>>(&mut self, key: &str, event: E) -> Result<OutgoingEvent<'_>, Error> {
        encode::check_key(key)?;
        self.running.environment.check_served(M::NAME)?;
        let payload = encode::payload(&event, E::EVENT, self.running.environment.limits.payload)?;
        let search = M::ENTRY.search.map_or_else(Vec::new, |search| search::of_event(search.names, &payload));
        let event = Event { name: E::EVENT.to_owned(), payload };
        let id = CallId(Uuid::now_v7());
        let now = self.running.environment.clock.now();
        let outgoing = Outgoing { search, ..Outgoing::new(id, M::NAME, key, event) };
        let sends = &mut self.running.verb_requests.sends;
        sends.push(outgoing);
        Ok(OutgoingEvent { outgoing: sends.last_mut().expect("it was added just now"), now })
    }
}

/// An event that a verb sends to another instance. It is sent as it is when this value is dropped.
#[derive(Debug)]
pub struct OutgoingEvent<'c> {
    outgoing: &'c mut Outgoing,
    now: Timestamp,
}

impl OutgoingEvent<'_> {
    /// Delivers the event after `wait`, or later. The id is for [`Ctx::unsend`].
    pub fn after(self, wait: Duration) -> CallId {
        let time = self.now + wait;
        self.deliver_at(time)
    }

    /// Delivers the event at `time`, or later. The id is for [`Ctx::unsend`].
    pub fn at(self, time: SystemTime) -> CallId {
        self.deliver_at(time.into())
    }

    /// Makes a refusal by the receiver a failure of this attempt: no transition is made, and the retry policy applies. The receiver decides
    /// when the attempt ends. An event that waits in the outbox for room is not refused; a refusal at its delivery is recorded only.
    pub fn required(self) -> Self {
        self.outgoing.is_required = true;
        self
    }

    /// The priority of the call that the event becomes, as for [`SendRequest::priority`](crate::handle::send::SendRequest::priority).
    pub fn priority(self, priority: Priority) -> Self {
        self.outgoing.priority = priority;
        self
    }

    fn deliver_at(self, time: Timestamp) -> CallId {
        self.outgoing.deliver_at = Some(time);
        self.outgoing.id
    }
}
