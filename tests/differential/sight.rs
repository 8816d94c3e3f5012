//! All data of an instance as lines that are equal on every database. Ids are replaced by the order in which they were created.

use std::collections::BTreeSet;

use fsm::{CallId, HistoryEvent};
use fsm_runtime::admin::look::InstanceDetails;

/// Returns the lines of one instance. They do not contain its key, because each walk uses keys of its own.
pub fn lines(details: &InstanceDetails) -> Vec<String> {
    let calls: BTreeSet<CallId> = details.attempts.iter().map(|attempt| attempt.call).collect();
    let nth = |call: CallId| calls.iter().position(|known| *known == call);
    let row = &details.seen.row;
    let (state, newest) = (row.state.as_deref(), row.newest.map(|(call, number)| (nth(call), number)));
    let record = row.record.as_deref().map(String::from_utf8_lossy);
    let mut lines = vec![
        format!("{} in {state:?}, version {}, paused {}, open {}, newest {newest:?}", row.status, row.version, row.paused, row.is_open),
        format!("since {}, changed {}, error {:?}, record {record:?}", row.created_at, row.updated_at, row.error),
        format!("inbox from {} to {}", row.inbox_head, row.inbox_tail),
    ];
    let mut attempts: Vec<_> = details.attempts.iter().collect();
    attempts.sort_by_key(|attempt| (attempt.call, attempt.number));
    for one in attempts {
        let (call, previous) = (nth(one.call), one.previous.map(nth));
        // The instance's pause flag determines whether its open attempt is held. Ended attempts are not held.
        let (from, is_held, is_claimed) = (&one.from, one.held && one.state.is_live(), one.worker.is_some());
        lines.push(format!("call {call:?} attempt {} of {} on {}: {from:?} -> {}", one.number, one.verb, one.event, one.to));
        lines.push(format!("    {}, held {is_held}, claimed {is_claimed}, after {previous:?}, error {:?}", one.state, one.error));
        let times = (one.created_at, one.scheduled_at, one.started_at, one.finished_at);
        lines.push(format!("    {times:?}, {:?}", one.retry_state));
    }
    lines.extend(details.inbox.iter().map(|waits| format!("{} waits at {}", waits.event, waits.position)));
    let timers = details.timers.iter();
    let mut timers: Vec<_> =
        timers.map(|timer| format!("{} {} of {:?}, held {}", timer.due_at, timer.event, timer.state, timer.held)).collect();
    // The ids of timers are left out, so the lines are sorted by their text.
    timers.sort();
    lines.extend(timers);
    let notes = details.entries.iter().filter(|entry| matches!(entry.event, HistoryEvent::Note { .. }));
    let mut notes: Vec<_> = notes.map(|note| format!("{note}, of call {:?}", note.call.map(nth))).collect();
    // History entries of the same time have no guaranteed order.
    notes.sort();
    lines.extend(notes);
    lines
}
