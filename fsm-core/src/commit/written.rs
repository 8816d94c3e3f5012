//! The result of a write, and the changes that can be written without another read.

use std::borrow::Cow;
use std::fmt;

use crate::changes::{Changes, Payload, TimerChange};

/// The result for one change of a batch.
#[derive(Clone, PartialEq, Eq)]
pub enum Written {
    /// All of the change is written.
    Done {
        /// The payload of the call whose first attempt it opened, from the request, the inbox or an earlier call.
        payload: Option<Vec<u8>>,
    },
    /// The rows that the change was decided on have changed since. Nothing of it is written.
    Outdated,
}

impl Written {
    /// The result of a change that [`fits`] accepts and that was written.
    pub fn done(changes: &Changes) -> Written {
        Written::Done { payload: payload(changes).map(Cow::into_owned) }
    }
}

/// Shows all fields except the content of the payload.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Done { payload: Some(payload) } => write!(f, "Done with a payload of {} bytes", payload.len()),
            Written::Done { payload: None } => f.write_str("Done"),
            Written::Outdated => f.write_str("Outdated"),
        }
    }
}

/// True if one statement can write these changes, because it needs no value that has to be read from the database first.
pub fn fits(changes: &Changes) -> bool {
    let Changes {
        instance: _,
        was: _,
        is_new: _,
        close: _,
        open,
        hold,
        retry_state,
        waits: _,
        inbox_taken,
        is_forecast_stale,
        timers,
        notes: _,
        request: _,
        link: _,
        search: _,
        traces: _,
    } = changes;
    let has_payload = open.as_ref().and_then(|open| open.payload.as_ref()).is_none_or(|payload| matches!(payload, Payload::Bytes(_)));
    let are_own = timers.iter().all(|change| matches!(change, TimerChange::Set(_) | TimerChange::Clear | TimerChange::Release));
    has_payload && are_own && hold.is_none() && retry_state.is_none() && inbox_taken.is_none() && !is_forecast_stale
}

/// The payload of the call that begins, if it came with the request.
pub fn payload(changes: &Changes) -> Option<Cow<'_, [u8]>> {
    match changes.open.as_ref()?.payload.as_ref()? {
        Payload::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
        Payload::Inbox(_) | Payload::Caught { .. } | Payload::Again(_) => None,
    }
}
