//! The writes that follow the guards. A sink runs them at once, or combines them into one statement or one SQLite transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, TimerChange};
use fsm_core::ids::SessionId;
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::fit;
use fsm_core::time::{Timestamp, micros};

use uuid::Uuid;

use super::json::{json, policy_text};
use crate::encrypted::fit_text;
use crate::error::Result;
use crate::family::child_event;
use crate::remote_children;
use crate::session_log;
use crate::sink::Sink;
use crate::sql;
use crate::values::{Value, values};

/// Adds events to the inbox.
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
            waits.priority.number(),
        ]
    });
    sink.put(&sql::INBOX_PUT, puts.collect()).await
}

/// Writes all that follows the guards, except the events that wait in an inbox: those of a transaction may be read before the instances are written.
pub(super) async fn all_but_inbox(sink: &mut Sink<'_, '_>, changes: &[&Changes], payloads: &[Option<Cow<'_, [u8]>>]) -> Result<()> {
    save(sink, changes, payloads).await?;
    log(sink, changes).await?;
    timers(sink, changes).await?;
    remember(sink, changes).await?;
    search(sink, changes).await?;
    traces(sink, changes).await
}

/// Updates the rows of existing instances, with the payloads of the calls that they open.
pub(super) async fn save(sink: &mut Sink<'_, '_>, changes: &[&Changes], payloads: &[Option<Cow<'_, [u8]>>]) -> Result<()> {
    let old = || changes.iter().zip(payloads).filter(|(change, _)| !change.is_new);
    let row = |instance: &Instance| values![instance.id.0, instance.inbox_tail, instance.updated_at.as_micros()];
    let added = old().filter(|(change, _)| change.only_adds());
    sink.put(&sql::SAVE_ADDED, added.map(|(change, _)| row(&change.instance)).collect()).await?;

    let (mut rest, mut ended, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for (change, payload) in old().filter(|(change, _)| !change.only_adds()) {
        let saved = Saved::of(change, sink.is_postgres(), payload.as_deref())?;
        match (&change.open, &change.close) {
            (Some(open), _) => opened.push((saved, open)),
            (None, Some(close)) => ended.push((saved, close)),
            (None, None) => rest.push(saved),
        }
    }
    let (moved, stayed): (Vec<_>, Vec<_>) = rest.iter().partition(|saved| saved.is_moved);
    sink.put(&sql::SAVE, moved.iter().map(|saved| joined::<SAVED, 4, 15>(saved.columns(), saved.place())).collect()).await?;
    sink.put(&sql::SAVE_IN_PLACE, stayed.iter().map(|saved| saved.columns()).collect()).await?;

    let errors: Vec<_> = ended.iter().map(|(_, close)| close.error.as_deref().map(fit_text)).collect();
    let ends = ended.iter().zip(&errors).map(|((saved, close), error)| {
        // An exhausted call may be retried by hand, which needs its payload.
        let keeps_payload = saved.change.instance.status == Status::Error;
        let end = values![close.becomes.as_str(), close.finished_at.as_micros(), error.as_deref(), keeps_payload];
        (saved, joined::<SAVED, 4, 15>(saved.columns(), end))
    });
    let (moved, stayed): (Vec<_>, Vec<_>) = ends.partition(|(saved, _)| saved.is_moved);
    sink.put(&sql::SAVE_ENDED, moved.iter().map(|(saved, row)| joined::<15, 4, 19>(*row, saved.place())).collect()).await?;
    sink.put(&sql::SAVE_ENDED_IN_PLACE, stayed.iter().map(|(_, row)| *row).collect()).await?;

    let begins = opened.iter().map(|(saved, open)| {
        let row: [Value<'_>; 12] = joined(saved.columns(), values![open.payload.is_none()]);
        (saved, joined::<12, OPEN, 35>(row, open_columns(Some(&open.attempt), saved.payload, saved.policy.as_deref())))
    });
    let (moved, stayed): (Vec<_>, Vec<_>) = begins.partition(|(saved, _)| saved.is_moved);
    sink.put(&sql::SAVE_OPENED, moved.iter().map(|(saved, row)| joined::<35, 4, 39>(*row, saved.place())).collect()).await?;
    sink.put(&sql::SAVE_OPENED_IN_PLACE, stayed.iter().map(|(_, row)| *row).collect()).await
}

/// A change to an existing instance, with the texts of its row.
struct Saved<'a> {
    change: &'a Changes,
    /// True if the status, the pause flag and the family are written too.
    is_moved: bool,
    error: Option<Cow<'a, str>>,
    policy: Option<String>,
    payload: Option<&'a [u8]>,
}

impl<'a> Saved<'a> {
    fn of(change: &'a Changes, is_postgres: bool, payload: Option<&'a [u8]>) -> Result<Saved<'a>> {
        let policy = change.open.as_ref().map(|open| policy_text(&open.attempt.retry_state)).transpose()?.flatten();
        let error = change.instance.error.as_deref().map(fit_text);
        Ok(Saved { change, is_moved: is_postgres || change.leaves_its_place(), error, policy, payload })
    }

    fn columns(&self) -> [Value<'_>; SAVED] {
        // Only a verb that succeeds changes the record. An unchanged record, which may be large, is not written again.
        let keeps_record = self.change.close.as_ref().is_none_or(|close| close.becomes != AttemptState::Success);
        let [id, state, version, record, rest @ ..] = moved_columns(&self.change.instance, self.error.as_deref());
        let record = if keeps_record { Value::Bytes(None) } else { record };
        joined::<5, 6, SAVED>([id, state, version, keeps_record.into(), record], rest)
    }

    fn place(&self) -> [Value<'_>; 4] {
        let Instance { status, paused, family, .. } = &self.change.instance;
        values![status.as_str(), *paused, family.as_str(), family.group()]
    }
}

/// Concatenates two rows.
pub(super) fn joined<'a, const A: usize, const B: usize, const ALL: usize>(one: [Value<'a>; A], other: [Value<'a>; B]) -> [Value<'a>; ALL] {
    const { assert!(A + B == ALL, "the columns of both are those of the whole") };
    let mut all = [Value::Flag(false); ALL];
    all[..A].copy_from_slice(&one);
    all[A..].copy_from_slice(&other);
    all
}

/// The columns of an instance that change with a transition, without those of its call.
pub(super) fn moved_columns<'a>(instance: &'a Instance, error: Option<&'a str>) -> [Value<'a>; MOVED] {
    values![
        instance.id.0,
        instance.state.as_deref(),
        instance.version,
        instance.record.as_deref(),
        error,
        instance.inbox_head,
        instance.inbox_tail,
        instance.updated_at.as_micros(),
        instance.entered_at.map(Timestamp::as_micros),
        instance.fair_by.as_deref(),
    ]
}

/// The number of columns of an instance that change with a transition.
pub(super) const MOVED: usize = 10;
/// The same with the one that says whether the record stays as it is.
const SAVED: usize = MOVED + 1;
/// The number of columns of an open attempt.
pub(super) const OPEN: usize = 23;

/// The columns of an open attempt, without its instance.
pub(super) fn open_columns<'a>(attempt: Option<&'a Attempt>, payload: Option<&'a [u8]>, policy: Option<&'a str>) -> [Value<'a>; OPEN] {
    let retry_state = attempt.map(|attempt| &attempt.retry_state);
    let due_at = attempt.filter(|attempt| attempt.state == AttemptState::Scheduled && !attempt.held).map(|attempt| attempt.scheduled_at);
    let limit_in = |state| attempt.filter(|attempt| attempt.state == state).and_then(|attempt| attempt.limit.as_deref());
    values![
        attempt.map(|attempt| attempt.call.0),
        attempt.map(|attempt| i64::from(attempt.number)),
        attempt.map(|attempt| attempt.state.as_str()),
        attempt.map(|attempt| attempt.verb.as_str()),
        attempt.map(|attempt| attempt.event.as_str()),
        payload,
        attempt.and_then(|attempt| attempt.from.as_deref()),
        attempt.map(|attempt| attempt.to.as_str()),
        attempt.map(|attempt| attempt.created_at.as_micros()),
        attempt.map(|attempt| attempt.scheduled_at.as_micros()),
        due_at.map(Timestamp::as_micros),
        retry_state.and_then(|retry_state| retry_state.remaining).map(i64::from),
        retry_state.map(|retry_state| micros(retry_state.backoff)),
        retry_state.and_then(|retry_state| retry_state.policy.as_ref()).map(|policy| micros(policy.max)),
        policy,
        retry_state.map(|retry_state| retry_state.first_at.as_micros()),
        attempt.and_then(|attempt| attempt.worker).map(|session| session.0),
        attempt.and_then(|attempt| attempt.started_at).map(Timestamp::as_micros),
        attempt.and_then(|attempt| attempt.previous).map(|call| call.0),
        retry_state.map(|retry_state| i64::from(retry_state.snoozes)),
        limit_in(AttemptState::Scheduled),
        limit_in(AttemptState::Executing),
        attempt.and_then(|attempt| attempt.priority.number()),
    ]
}

/// Adds a row to the log of each session that begins attempts, with the instances of these attempts.
async fn log(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let mut begun: BTreeMap<SessionId, Vec<u8>> = BTreeMap::new();
    for attempt in changes.iter().filter_map(|change| Some(&change.open.as_ref()?.attempt)) {
        if let Some(session) = attempt.worker {
            begun.entry(session).or_default().extend_from_slice(attempt.instance.0.as_bytes());
        }
    }
    let rows = begun.iter().map(|(session, instances)| values![session.0, session_log::next_number(), instances.as_slice()]);
    sink.put_whole(&sql::LOG_PUT, rows.collect()).await
}

/// Writes the changes of timers. Old timers are deleted before new ones are set.
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
            timer.priority.number(),
        ]),
        _ => None,
    });
    sink.put(&sql::TIMER_SET, set.collect()).await
}

/// Writes search fields. The rows of an instance are only written by a transaction that has locked it or created it.
async fn search(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    for (sql, is_new) in [(&sql::SEARCH_NEW, true), (&sql::SEARCH_PUT, false)] {
        let changed = changes.iter().filter(|change| change.is_new == is_new);
        let fields = changed.flat_map(|change| change.search.iter().map(|field| (&change.instance, field)));
        let rows = fields.map(|(instance, field)| {
            values![instance.id.0, field.name.as_str(), instance.machine.as_str(), instance.key.as_str(), field.value.as_str()]
        });
        sink.put(sql, rows.collect()).await?;
    }
    Ok(())
}

/// Writes notes, and requests for deduplication.
async fn remember(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
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
    tell_parents(sink, changes).await?;

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

/// Records the ends and errors of children for their parents. The statements read from the rows of the children which events the parents want.
async fn tell_parents(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let told = changes.iter().filter(|change| change.concerns_parent());
    let (elsewhere, here): (Vec<_>, Vec<_>) =
        told.partition(|change| change.instance.parent.is_some_and(|parent| parent.partition.is_some()));
    if !elsewhere.is_empty() {
        remote_children::report(sink, &elsewhere).await?;
    }
    let told: Vec<_> = here.into_iter().map(|change| (*change, child_event(change))).collect();
    let rows = told.iter().map(|(change, payload)| {
        let (instance, is_end) = (&change.instance, change.instance.status.is_ended());
        values![instance.id.0, Uuid::now_v7(), is_end, payload.as_slice(), instance.updated_at.as_micros()]
    });
    sink.put(&sql::CHILD_EVENT_PUT, rows.collect()).await?;
    // The history of a child that is cancelled names the reason already.
    let ended = told.iter().filter(|(change, _)| change.instance.status == Status::Completed);
    let rows = ended.map(|(change, _)| values![change.instance.id.0, change.instance.updated_at.as_micros()]);
    sink.put(&sql::CHILD_UNAWAITED, rows.collect()).await
}

/// Stores the trace contexts of calls.
pub(super) async fn traces(sink: &mut Sink<'_, '_>, changes: &[&Changes]) -> Result<()> {
    let traces = changes.iter().flat_map(|change| change.traces.iter().map(|(call, context)| (&change.instance, call, context)));
    let rows = traces.map(|(instance, call, context)| values![call.0, instance.id.0, context.traceparent(), context.tracestate()]);
    sink.put(&sql::TRACE_PUT, rows.collect()).await
}
