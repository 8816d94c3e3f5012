//! The changes that can be decided without locks, and the versions that show whether their instances are still as they were read.

use std::borrow::Cow;

use fsm_core::changes::{Changes, Payload, TimerChange};

use crate::store::file_version::FileVersion;

/// The version that a guard compares: if it is unchanged, the instance is still as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVersion {
    /// In PostgreSQL, the row version that the instance was read with.
    Row,
    /// In SQLite, the file version in which the instance was read.
    FileVersion(FileVersion),
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
