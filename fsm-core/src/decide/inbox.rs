//! The known part of an inbox. Only a decision that empties the inbox reads all of it.

use crate::changes::{Changes, Forecast, Waiting, Waits};

/// The known part of an inbox.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inbox {
    /// The first waiting events in order. There may be more in the database.
    pub first: Vec<Waiting>,
    /// The forecast that was stored with the last waiting event.
    pub forecast: Option<Forecast>,
}

/// The decision needs more waiting events than were read. The caller reads more and decides again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedsMoreRows;

impl From<Vec<Waiting>> for Inbox {
    /// A completely read inbox without a forecast.
    fn from(first: Vec<Waiting>) -> Inbox {
        Inbox { first, forecast: None }
    }
}

impl Inbox {
    /// Applies written changes to the known part of the inbox.
    pub fn apply(&mut self, changes: &Changes) {
        if let Some(taken) = &changes.inbox_taken {
            self.first.retain(|waiting| waiting.position >= taken.end);
        }
        if changes.is_forecast_stale {
            self.forecast = None;
        }
        if let Some(waits) = changes.waits.as_ref().filter(|waits| waits.position + 1 < changes.instance.inbox_tail) {
            self.first.insert(0, waiting(waits));
        } else if let Some(waits) = &changes.waits {
            // An event behind a gap cannot be added, because the events in the gap were not read.
            let is_next = self.first.last().map_or(changes.instance.inbox_head, |last| last.position + 1) == waits.position;
            if is_next {
                self.first.push(waiting(waits));
            }
            self.forecast.clone_from(&waits.forecast);
        }
    }
}

/// The row of the inbox, without its payload.
fn waiting(waits: &Waits) -> Waiting {
    Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone(), priority: waits.priority }
}
