//! What follows the guards, said to a sink: run at once one by one, or put together into one statement.

use std::borrow::Cow;

use fsm_core::changes::{Changes, TimerChange};
use fsm_core::instance::Instance;
use fsm_core::outcome::fit;
use fsm_core::time::{Timestamp, micros};

use super::{json, policy_text};
use crate::store::combined::Sink;
use crate::store::encrypted::fit_text;
use crate::store::error::Result;
use crate::store::sql;
use crate::store::values::{Value, values};

/// Events that begin to wait.
pub(super) async fn waits(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let waits: Vec<_> = changes.iter().filter_map(|change| Some((*change, change.waits.as_ref()?))).collect();
    let mut outlooks = Vec::with_capacity(waits.len());
    for (_, waits) in &waits {
        outlooks.push(json(waits.forecast.as_ref())?);
    }
    let puts = waits.iter().zip(&outlooks).map(|((change, waits), forecast)| {
        values![
            change.instance.id.0,
            waits.position,
            waits.call.0,
            waits.event.name.as_str(),
            waits.event.payload.as_slice(),
            change.instance.updated_at.as_micros(),
            forecast.as_deref(),
        ]
    });
    sink.put(&sql::INBOX_PUT, puts.collect()).await
}

/// The rows of instances that exist.
pub(super) async fn save(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let (added, old): (Vec<&Changes>, Vec<_>) = changes.iter().filter(|change| !change.is_new).partition(|change| change.only_adds());
    let row = |instance: &Instance| values![instance.id.0, instance.inbox_tail, instance.updated_at.as_micros()];
    sink.put(&sql::SAVE_ADDED, added.iter().map(|change| row(&change.instance)).collect()).await?;
    let errors: Vec<_> = old.iter().map(|change| change.instance.error.as_deref().map(fit_text)).collect();
    let (moved, stayed): (Vec<_>, Vec<_>) =
        old.iter().zip(&errors).partition(|(change, _)| sink.is_postgres() || change.leaves_its_place());
    let whole = moved.iter().map(|(change, error)| {
        let [id, state, version, record, call, attempt, is_open, error, head, tail, at, entered] =
            in_place(&change.instance, error.as_deref());
        let [status, paused] = values![change.instance.status.as_str(), change.instance.paused];
        [id, state, version, record, call, attempt, is_open, error, head, tail, at, entered, status, paused]
    });
    sink.put(&sql::SAVE, whole.collect()).await?;
    sink.put(&sql::SAVE_IN_PLACE, stayed.iter().map(|(change, error)| in_place(&change.instance, error.as_deref())).collect()).await
}

/// A row for `sql::SAVE_IN_PLACE`.
pub(super) fn in_place<'a>(instance: &'a Instance, error: Option<&'a str>) -> [Value<'a>; 12] {
    values![
        instance.id.0,
        instance.state.as_deref(),
        instance.version,
        instance.record.as_deref(),
        instance.newest.map(|(call, _)| call.0),
        instance.newest.map(|(_, attempt)| i64::from(attempt)),
        instance.is_open,
        error,
        instance.inbox_head,
        instance.inbox_tail,
        instance.updated_at.as_micros(),
        instance.entered_at.map(Timestamp::as_micros),
    ]
}

/// The attempts that begin, and whether live ones are held.
pub(super) async fn open(sink: &mut Sink<'_, '_>, changes: &[&Changes], payloads: &[Option<Cow<'_, [u8]>>]) -> Result<()> {
    let opened: Vec<_> =
        changes.iter().zip(payloads).filter_map(|(change, payload)| Some((&change.open.as_ref()?.attempt, payload))).collect();
    let mut texts = Vec::with_capacity(opened.len());
    for (attempt, _) in &opened {
        texts.push((policy_text(&attempt.retry_state)?, attempt.error.as_deref().map(fit_text)));
    }
    let batch = opened.iter().zip(&texts).map(|((attempt, payload), (policy, error))| {
        values![
            attempt.call.0,
            i64::from(attempt.number),
            attempt.instance.0,
            attempt.machine.as_str(),
            attempt.verb.as_str(),
            attempt.event.as_str(),
            payload.as_deref(),
            attempt.from.as_deref(),
            attempt.to.as_str(),
            attempt.state.as_str(),
            attempt.held,
            attempt.created_at.as_micros(),
            attempt.scheduled_at.as_micros(),
            attempt.retry_state.remaining.map(i64::from),
            micros(attempt.retry_state.backoff),
            attempt.retry_state.policy.as_ref().map(|policy| micros(policy.max)),
            policy.as_deref(),
            attempt.retry_state.first_at.as_micros(),
            attempt.worker.map(|session| session.0),
            attempt.started_at.map(Timestamp::as_micros),
            attempt.finished_at.map(Timestamp::as_micros),
            error.as_deref(),
            attempt.previous.map(|call| call.0),
            i64::from(attempt.retry_state.snoozes),
        ]
    });
    sink.put(&sql::OPEN, batch.collect()).await?;

    let holds = changes.iter().filter_map(|change| {
        let (call, number) = change.hold?;
        Some(values![call.0, i64::from(number), change.instance.paused])
    });
    sink.put(&sql::HOLD, holds.collect()).await
}

/// Timers that fired or were left go before new ones come.
pub(super) async fn timers(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    if changes.iter().all(|change| change.timers.is_empty()) {
        return Ok(());
    }
    let all = || changes.iter().flat_map(|change| change.timers.iter().map(|timer| (&change.instance, timer)));
    let fired = all().filter_map(|(_, change)| if let TimerChange::Fired(timer) = change { Some(values![timer.0]) } else { None });
    sink.put(&sql::TIMER_DELETE, fired.collect()).await?;
    let cleared = all().filter(|(_, change)| matches!(change, TimerChange::Clear)).map(|(instance, _)| values![instance.id.0]);
    sink.put(&sql::TIMER_CLEAR, cleared.collect()).await?;
    let held = all().filter_map(|(_, change)| if let TimerChange::Hold(timer) = change { Some(values![timer.0]) } else { None });
    sink.put(&sql::TIMER_HOLD, held.collect()).await?;
    let released = all().filter(|(_, change)| matches!(change, TimerChange::Release)).map(|(instance, _)| values![instance.id.0]);
    sink.put(&sql::TIMER_RELEASE, released.collect()).await?;
    let set = all().filter_map(|(instance, change)| match change {
        TimerChange::Set(timer) => Some(values![
            timer.id.0,
            timer.instance.0,
            instance.machine.as_str(),
            timer.state.as_deref(),
            timer.event.name.as_str(),
            timer.event.payload.as_slice(),
            timer.due_at.as_micros(),
        ]),
        _ => None,
    });
    sink.put(&sql::TIMER_SET, set.collect()).await
}

/// Notes, and requests to be known again.
pub(super) async fn remember(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let notes: Vec<_> = changes.iter().flat_map(|change| &change.notes).map(|note| (note, note.detail.as_deref().map(fit))).collect();
    let batch = notes.iter().map(|(note, detail)| {
        values![
            note.instance.0,
            note.at.as_micros(),
            note.kind.as_str(),
            note.call.map(|call| call.0),
            detail.as_deref(),
            note.actor.as_deref()
        ]
    });
    sink.put(&sql::NOTE, batch.collect()).await?;

    let requests = changes.iter().filter_map(|change| Some((&change.instance, change.request.as_ref()?)));
    let batch = requests.map(|(instance, request)| {
        values![
            instance.id.0,
            request.dedup.as_str(),
            request.event.as_deref(),
            request.digest.as_slice(),
            request.call.0,
            request.at.as_micros()
        ]
    });
    sink.put(&sql::REQUEST, batch.collect()).await
}
