//! The write path, mirroring `fsm-store/src/write.rs`: the guards first, then all changes of one decision, under the unique constraints of the
//! schema.

use std::collections::BTreeMap;

use fsm_core::call::AttemptState;
use fsm_core::changes::{Changes, Close, Open, Payload, TimerChange};
use fsm_core::instance::Instance;
use fsm_core::outcome::Event;

use super::promise::{Broken, Promise};
use super::store::{Row, Store};
use super::variant::Variant;

/// The result of writing one request of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Done,
    Outdated,
}

impl Store {
    /// Writes all of the changes or nothing. An error is a constraint of the schema that a statement ran into.
    pub fn write(&mut self, changes: &Changes, variant: Variant) -> Result<Written, Broken> {
        if !self.guards_hold(changes, variant) {
            return Ok(Written::Outdated);
        }
        self.close(changes, variant);
        if let Some((call, number, retry_state)) = changes.retry_state.as_deref() {
            self.calls.get_mut(&(*call, *number)).expect("its guard held").attempt.retry_state = retry_state.clone();
        }
        if (changes.is_new && self.instance(&changes.instance.key).is_none()) || self.instances.contains_key(&changes.instance.id) {
            let row_version = self.instances.get(&changes.instance.id).map_or(0, |there| there.row_version + 1);
            self.instances.insert(changes.instance.id, Instance { row_version, ..changes.instance.clone() });
        }
        self.receive(changes)?;
        let taken = self.take_out(changes);
        self.reject(changes, variant);
        if let Some(open) = &changes.open {
            self.open(changes, open, &taken, variant)?;
        }
        if let Some(row) = changes.hold.and_then(|id| self.calls.get_mut(&id)).filter(|row| row.attempt.state.is_live()) {
            row.attempt.held = changes.instance.paused;
        }
        self.change_timers(changes)?;
        self.notes.extend(changes.notes.iter().cloned());
        if let Some(request) = &changes.request
            && self.requests.insert((changes.instance.id, request.dedup.clone()), request.clone()).is_some()
        {
            return Promise::DedupIdWrittenOnce.broken(format!("fsm_requests_pkey: `{}` is there already", request.dedup.escape_debug()));
        }
        Ok(Written::Done)
    }

    pub fn guards_hold(&self, changes: &Changes, variant: Variant) -> bool {
        if changes.fired().is_some_and(|timer| !self.timers.contains_key(&timer)) && variant != Variant::TimerWithoutGuard {
            return false;
        }
        if let Some(close) = &changes.close {
            let attempt = self.attempt((close.call, close.number));
            let is_blind = match variant {
                Variant::SweepWithoutLooking => close.becomes == AttemptState::Lost,
                Variant::OperatorWithoutGuard => close.becomes == AttemptState::Cancelled,
                _ => false,
            };
            if !attempt.is_some_and(|attempt| is_blind || (attempt.state == close.expected && attempt.worker == close.held_by)) {
                return false;
            }
        }
        if let Some((call, number, _)) = changes.retry_state.as_deref().cloned()
            && self.attempt((call, number)).is_none_or(|attempt| attempt.state != AttemptState::Scheduled)
        {
            return false;
        }
        !changes.is_new || variant == Variant::KeyWithoutGuard || self.instance(&changes.instance.key).is_none()
    }

    /// The attempt becomes a row of `fsm_async_calls`.
    fn close(&mut self, changes: &Changes, variant: Variant) {
        let is_again = |close: &Close| changes.open.as_ref().is_some_and(|open| open.attempt.call == close.call);
        let close = changes.close.as_ref();
        if let Some(close) = close.filter(|close| variant == Variant::AttemptNotAppended && is_again(close)) {
            self.calls.remove(&(close.call, close.number));
            return;
        }
        if let Some(close) = close
            && let Some(row) = self.calls.get_mut(&(close.call, close.number))
        {
            row.attempt.state = close.becomes;
            row.attempt.finished_at = Some(close.finished_at);
            row.attempt.error = close.error.clone();
        }
    }

    fn receive(&mut self, changes: &Changes) -> Result<(), Broken> {
        let Some(waits) = &changes.waits else { return Ok(()) };
        if self.inbox.values().any(|other| other.call == waits.call) {
            return Promise::WaitsInOnePlace.broken(format!("fsm_inbox_call: {} waits already", waits.call));
        }
        match self.inbox.insert((changes.instance.id, waits.position), waits.clone()) {
            Some(_) => Promise::PlaceGivenOnce.broken(format!("fsm_inbox_pkey: position {} is taken", waits.position)),
            None => Ok(()),
        }
    }

    fn take_out(&mut self, changes: &Changes) -> BTreeMap<i64, Event> {
        let Some(taken) = &changes.inbox_taken else { return BTreeMap::new() };
        let whose = changes.instance.id;
        let places: Vec<_> = self.inbox.range((whose, taken.start)..(whose, taken.end)).map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| Some((place.1, self.inbox.remove(&place)?.event))).collect()
    }

    fn reject(&mut self, changes: &Changes, variant: Variant) {
        let last = (changes.instance.id, changes.instance.inbox_tail - 1);
        if let Some(waits) = self.inbox.get_mut(&last).filter(|_| changes.is_forecast_stale && variant != Variant::OutlookKept) {
            waits.forecast = None;
        }
    }

    /// Begins an attempt: `SAVE_OPENED`. A row has room for one open attempt, so that a second one would overwrite the first.
    pub fn open(&mut self, changes: &Changes, open: &Open, taken: &BTreeMap<i64, Event>, variant: Variant) -> Result<(), Broken> {
        let attempt = (*open.attempt).clone();
        let payload = match &open.payload {
            None => None,
            Some(Payload::Bytes(bytes)) => Some(bytes.clone()),
            Some(Payload::Inbox(position)) => {
                let event = taken
                    .get(position)
                    .map_or_else(|| Promise::PayloadIsThere.broken(format!("no event waits at position {position}")), Ok)?;
                Some(event.payload.clone())
            }
            Some(Payload::Caught { call, .. }) => Some(format!("caught {call}").into_bytes()),
            Some(Payload::Again(call)) => self.calls.get(&(*call, 1)).and_then(|row| row.payload.clone()),
        };
        let is_reused = variant == Variant::RowsReused && attempt.number > 1;
        if !is_reused && self.calls.contains_key(&(attempt.call, attempt.number)) {
            return Promise::AttemptWrittenOnce
                .broken(format!("fsm_async_calls_pkey: attempt {} of {} is there already", attempt.number, attempt.call));
        }
        if self.live().any(|live| live.instance == changes.instance.id) {
            return Promise::OneLiveAttempt.broken(format!("`{}` has a live attempt already", changes.instance.key));
        }
        self.grants += u64::from(attempt.state == AttemptState::Executing);
        if let Some(session) = attempt.worker {
            self.log(session, attempt.instance, variant);
        }
        if is_reused {
            let instance = self.instances.get_mut(&attempt.instance).expect("it was just saved");
            instance.newest = Some((attempt.call, 1));
            let payload = self.calls.get(&(attempt.call, 1)).and_then(|row| row.payload.clone());
            let row = Row { attempt: fsm_core::call::Attempt { number: 1, ..attempt }, payload, grant: self.grants };
            self.calls.insert((row.attempt.call, 1), row);
            return Ok(());
        }
        self.calls.insert((attempt.call, attempt.number), Row { attempt, payload, grant: self.grants });
        Ok(())
    }

    fn change_timers(&mut self, changes: &Changes) -> Result<(), Broken> {
        let whose = changes.instance.id;
        let belongs = |change: &TimerChange, wanted: fn(&TimerChange) -> bool| wanted(change);
        for change in &changes.timers {
            if let TimerChange::Fired(timer) = change {
                self.timers.remove(timer);
            }
        }
        if changes.timers.iter().any(|change| belongs(change, |change| matches!(change, TimerChange::Clear))) {
            self.timers.retain(|_, (timer, _)| timer.instance != whose || timer.state.is_none());
        }
        for change in &changes.timers {
            match change {
                TimerChange::Hold(timer) => self.timers.get_mut(timer).into_iter().for_each(|(_, held)| *held = true),
                TimerChange::Release => {
                    self.timers.values_mut().filter(|(timer, _)| timer.instance == whose).for_each(|(_, held)| *held = false);
                }
                _ => {}
            }
        }
        for change in &changes.timers {
            if let TimerChange::Set(timer) = change
                && self.timers.insert(timer.id, (timer.clone(), false)).is_some()
            {
                return Promise::TimerWrittenOnce.broken(format!("fsm_timers_pkey: timer {} is there already", timer.id));
            }
        }
        Ok(())
    }
}
