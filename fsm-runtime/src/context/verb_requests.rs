//! The requests of a verb: the instance's next event, and events to other instances.

use std::any::TypeId;
use std::time::{Duration, SystemTime};

use fsm_core::ids::CallId;
use fsm_core::outcome::{Event, Outgoing};
use fsm_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::Ctx;
use crate::encode;
use crate::error::Error;
use crate::registry::{EventFor, Machine};

impl Ctx<'_> {
    /// Sets the event that this instance takes right after the transition, before the events in its inbox. Each attempt can set one.
    ///
    /// Returns an error if the state that this verb enters does not take the event (for a catch verb: the state that the instance is in),
    /// or if an event was already set.
    pub fn next<E: Serialize + 'static>(&mut self, event: E) -> Result<(), Error> {
        if self.verb_requests.next.is_some() {
            return Err(Error::input(format!("`{}` has asked for its next event already: one an attempt", self.attempt.verb)));
        }
        let machine = &self.environment.machine;
        // A catch verb makes no transition, so its next event must fit the state that the instance is in.
        let state = if self.attempt.is_catch() { self.attempt.from.as_deref() } else { Some(self.attempt.to.as_str()) };
        let name = self.environment.event_name(TypeId::of::<E>());
        let fits = name.is_some_and(|name| machine.edge(state, name).is_some_and(|edge| edge.after.is_none()));
        let Some(name) = name.filter(|_| fits) else {
            let accepted: Vec<_> = machine.accepts(state).map(|name| format!("`{name}`")).collect();
            let accepted = if accepted.is_empty() { "no events".to_owned() } else { accepted.join(", ") };
            let (asked, at) = (std::any::type_name::<E>(), state.map_or("at its beginning".to_owned(), |state| format!("in `{state}`")));
            return Err(Error::input(format!("`{}` {at} takes {accepted}, not `{asked}`", self.attempt.machine)));
        };
        let payload = encode::payload(&event, name, self.environment.limits.payload)?;
        self.verb_requests.next = Some(Event { name: name.to_owned(), payload });
        Ok(())
    }

    /// Sends an event to another instance when this transition is committed. If the receiver refuses the event, its history records that.
    pub fn send<M: Machine>(&mut self, key: impl AsRef<str>, event: impl EventFor<M>) -> Result<(), Error> {
        self.outgoing(key.as_ref(), event, None)
    }

    /// Like [`send`](Ctx::send), delivered after `wait` or later.
    pub fn send_after<M: Machine>(&mut self, wait: Duration, key: impl AsRef<str>, event: impl EventFor<M>) -> Result<(), Error> {
        let at = self.environment.clock.now() + wait;
        self.outgoing(key.as_ref(), event, Some(at))
    }

    /// Like [`send`](Ctx::send), delivered at `time` or later.
    pub fn send_at<M: Machine>(&mut self, time: SystemTime, key: impl AsRef<str>, event: impl EventFor<M>) -> Result<(), Error> {
        self.outgoing(key.as_ref(), event, Some(time.into()))
    }

    fn outgoing<M: Machine, E: EventFor<M>>(&mut self, key: &str, event: E, deliver_at: Option<Timestamp>) -> Result<(), Error> {
        encode::check_key(key)?;
        self.environment.check_served(M::NAME)?;
        let payload = encode::payload(&event, E::EVENT, self.environment.limits.payload)?;
        let event = Event { name: E::EVENT.to_owned(), payload };
        let id = CallId(Uuid::now_v7());
        self.verb_requests.sends.push(Outgoing { id, machine: M::NAME.to_owned(), key: key.to_owned(), event, deliver_at });
        Ok(())
    }
}
