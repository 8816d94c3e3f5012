//! The history of an instance as readable entries, from its attempts and the history rows.

use std::fmt;
use std::time::Duration;

use fsm_core::call::{Attempt as Row, AttemptState};
use fsm_core::changes::{Note, NoteKind};
use fsm_core::duration;
use fsm_core::ids::CallId;
use fsm_core::time::{Timestamp, micros};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// One line of an instance's history. `Display` is a sentence with its time. It serialises as one object: `kind`, the fields of that kind, `at`
/// and `call`; points in time as RFC 3339 texts, durations in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// The time.
    pub at: Timestamp,
    /// The call that the entry belongs to.
    pub call: Option<CallId>,
    /// The content of the entry.
    pub event: HistoryEvent,
}

/// The content of a history entry.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryEvent {
    /// An event was accepted, and its verb was called.
    Event {
        /// The event type.
        event: String,
        /// The verb.
        verb: String,
    },
    /// An attempt ended or executes.
    Attempt {
        /// The number of the attempt, from 1.
        number: u32,
        /// The verb.
        verb: String,
        /// The outcome, or the present state.
        state: AttemptState,
        /// The duration of the attempt.
        took: Option<Duration>,
        /// The error, if it failed.
        error: Option<String>,
    },
    /// Another attempt was scheduled.
    Scheduled {
        /// Its number.
        number: u32,
        /// The verb.
        verb: String,
        /// When it may start.
        at: Timestamp,
        /// The wait before it.
        wait: Duration,
    },
    /// No attempts were left.
    Exhausted {
        /// The verb.
        verb: String,
        /// The number of attempts that were made.
        attempts: u32,
    },
    /// A transition.
    Transition {
        /// The previous state; `None` if this is the first transition.
        from: Option<String>,
        /// The new state.
        to: String,
    },
    /// An internal transition ended: the instance stays in its state.
    Stayed {
        /// The state.
        state: String,
    },
    /// An operator acted, an event interrupted a call or was rejected, or a late report arrived.
    Note {
        /// The kind of the note.
        kind: NoteKind,
        /// The reason.
        detail: Option<String>,
        /// The operator.
        actor: Option<String>,
    },
}

/// Merges the attempts and notes of an instance into its history, oldest first.
///
/// Attempts are in the order of their calls, independent of the clocks of the processes that ran them. Notes are placed by their time, and
/// among entries of the same time by their call.
pub(crate) fn merged(attempts: Vec<Row>, notes: Vec<Note>) -> Vec<HistoryEntry> {
    let (mut retries, others): (Vec<Note>, Vec<Note>) = notes.into_iter().partition(|note| note.kind == NoteKind::Retried);
    let mut entries = Vec::new();
    for (place, row) in attempts.iter().enumerate() {
        // An operator's retry comes before the attempt that it caused.
        let by_hand = retries.iter().position(|note| row.number > 1 && note.call == Some(row.call) && note.at == row.created_at);
        entries.extend(by_hand.map(|note| note_entry(retries.remove(note))));
        entries.extend(attempt_entries(row));
        let interrupts =
            |note: &Note| note.kind == NoteKind::Interrupted && note.call == Some(row.call) && Some(note.at) == row.finished_at;
        if !others.iter().any(interrupts) {
            entries.extend(exhaustion_entry(row, attempts.get(place + 1)));
        }
    }
    let mut rest: Vec<Note> = retries.into_iter().chain(others).collect();
    rest.sort_by_key(|note| note.at);
    for note in rest {
        let place = place_of(&note, &entries);
        entries.insert(place, note_entry(note));
    }
    entries
}

/// The place of a note: after all older entries. Among entries of the same time it comes after those of its own call, or, if there are
/// none, after those of the call before. If the call never began, its event was rejected before the next event was taken.
fn place_of(note: &Note, entries: &[HistoryEntry]) -> usize {
    let begin = entries.iter().rposition(|entry| entry.at < note.at).map_or(0, |last| last + 1);
    let same = entries[begin..].iter().take_while(|entry| entry.at == note.at).count();
    let same = &entries[begin..begin + same];
    let is_own = |entry: &HistoryEntry| entry.call == note.call;
    let is_event = |entry: &HistoryEntry| matches!(entry.event, HistoryEvent::Event { .. });
    let place = if note.call.is_none() {
        same.len()
    } else if let Some(last) = same.iter().rposition(is_own) {
        last + 1
    } else {
        let began_before = entries[..begin].iter().any(|entry| is_own(entry) && !matches!(entry.event, HistoryEvent::Note { .. }));
        let next = same.iter().position(|entry| is_event(entry) && (began_before || entry.call > note.call));
        next.unwrap_or(same.len())
    };
    begin + place
}

fn note_entry(note: Note) -> HistoryEntry {
    HistoryEntry { at: note.at, call: note.call, event: HistoryEvent::Note { kind: note.kind, detail: note.detail, actor: note.actor } }
}

/// Returns an entry if the attempt exhausted its call: it failed, and no other attempt of the call follows it directly.
fn exhaustion_entry(row: &Row, next: Option<&Row>) -> Option<HistoryEntry> {
    let at = row.finished_at.filter(|_| matches!(row.state, AttemptState::Error | AttemptState::Lost))?;
    let has_retries = row.retry_state.remaining != Some(0);
    // After retention has shortened a long call, attempts are missing between the first one and those that remain.
    let is_next = |next: &Row| next.created_at == at || next.number > row.number + 1;
    let is_followed = has_retries && next.is_some_and(|next| next.call == row.call && is_next(next));
    (!is_followed).then(|| HistoryEntry {
        at,
        call: Some(row.call),
        event: HistoryEvent::Exhausted { verb: row.verb.clone(), attempts: row.number },
    })
}

fn attempt_entries(row: &Row) -> Vec<HistoryEntry> {
    let entry = |at, event| HistoryEntry { at, call: Some(row.call), event };
    let mut entries = Vec::new();
    if row.number == 1 {
        entries.push(entry(row.created_at, HistoryEvent::Event { event: row.event.clone(), verb: row.verb.clone() }));
    } else {
        let wait = row.scheduled_at.since(row.created_at);
        entries.push(entry(
            row.created_at,
            HistoryEvent::Scheduled { number: row.number, verb: row.verb.clone(), at: row.scheduled_at, wait },
        ));
    }
    if let Some(at) = row.finished_at.or(row.started_at) {
        let took = row.finished_at.zip(row.started_at).map(|(end, start)| end.since(start));
        let what = HistoryEvent::Attempt { number: row.number, verb: row.verb.clone(), state: row.state, took, error: row.error.clone() };
        entries.push(entry(at, what));
    }
    if let (AttemptState::Success, Some(at), false) = (row.state, row.finished_at, row.is_catch()) {
        entries.push(entry(
            at,
            match row.is_stay() {
                true => HistoryEvent::Stayed { state: row.to.clone() },
                false => HistoryEvent::Transition { from: row.from.clone(), to: row.to.clone() },
            },
        ));
    }
    entries
}

impl Serialize for HistoryEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match &self.event {
            HistoryEvent::Event { event, verb } => {
                map.serialize_entry("kind", "event")?;
                map.serialize_entry("event", event)?;
                map.serialize_entry("verb", verb)?;
            }
            HistoryEvent::Attempt { number, verb, state, took, error } => {
                map.serialize_entry("kind", "attempt")?;
                map.serialize_entry("attempt", number)?;
                map.serialize_entry("verb", verb)?;
                map.serialize_entry("state", state)?;
                map.serialize_entry("took_us", &took.map(micros))?;
                map.serialize_entry("error", error)?;
            }
            HistoryEvent::Scheduled { number, verb, at, wait } => {
                map.serialize_entry("kind", "scheduled")?;
                map.serialize_entry("attempt", number)?;
                map.serialize_entry("verb", verb)?;
                map.serialize_entry("scheduled_at", &at.to_string())?;
                map.serialize_entry("wait_us", &micros(*wait))?;
            }
            HistoryEvent::Exhausted { verb, attempts } => {
                map.serialize_entry("kind", "exhausted")?;
                map.serialize_entry("verb", verb)?;
                map.serialize_entry("attempts", attempts)?;
            }
            HistoryEvent::Stayed { state } => {
                map.serialize_entry("kind", "stayed")?;
                map.serialize_entry("state", state)?;
            }
            HistoryEvent::Transition { from, to } => {
                map.serialize_entry("kind", "transition")?;
                map.serialize_entry("from", from)?;
                map.serialize_entry("to", to)?;
            }
            HistoryEvent::Note { kind, detail, actor } => {
                map.serialize_entry("kind", kind)?;
                map.serialize_entry("detail", detail)?;
                map.serialize_entry("actor", actor)?;
            }
        }
        map.serialize_entry("at", &self.at.to_string())?;
        map.serialize_entry("call", &self.call)?;
        map.end()
    }
}

impl fmt::Display for HistoryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  ", self.at)?;
        match &self.event {
            HistoryEvent::Event { event, verb } => write!(f, "`{event}` calls `{verb}`"),
            HistoryEvent::Attempt { number, verb, state, took, error } => {
                write!(f, "attempt {number} of `{verb}`: {state}")?;
                if let Some(took) = took {
                    write!(f, " after {}", rounded(*took))?;
                }
                error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            HistoryEvent::Scheduled { number, verb, wait, .. } if wait.is_zero() => {
                write!(f, "attempt {number} of `{verb}` is due at once")
            }
            HistoryEvent::Scheduled { number, verb, at, wait } => {
                write!(f, "attempt {number} of `{verb}` is scheduled for {at}, in {}", rounded(*wait))
            }
            HistoryEvent::Exhausted { verb, attempts: 1 } => write!(f, "`{verb}` is exhausted after one attempt"),
            HistoryEvent::Exhausted { verb, attempts } => write!(f, "`{verb}` is exhausted after {attempts} attempts"),
            HistoryEvent::Transition { from: Some(from), to } => write!(f, "`{from}` -> `{to}`"),
            HistoryEvent::Transition { from: None, to } => write!(f, "begins in `{to}`"),
            HistoryEvent::Stayed { state } => write!(f, "stays in `{state}`"),
            HistoryEvent::Note { kind, detail, actor } => {
                write!(f, "{kind}")?;
                actor.iter().try_for_each(|actor| write!(f, " by {actor}"))?;
                detail.iter().try_for_each(|detail| write!(f, ": {detail}"))
            }
        }
    }
}

/// Rounds to milliseconds, which are precise enough for people. A shorter time is not rounded to zero.
fn rounded(span: Duration) -> String {
    let ms = span.as_millis();
    if ms == 0 { duration::display(span) } else { duration::display(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))) }
}
