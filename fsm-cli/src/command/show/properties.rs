//! The properties of an instance, one on each line.

use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::look::InstanceDetails;
use fsm_runtime::children::Relative;
use fsm_runtime::handle::activity::OpenCall;

use crate::clean::clean;
use crate::command::liveness::{Lapse, Liveness};
use crate::command::ls;
use crate::stage::{apart, short};
use crate::table::{BAD, FAINT, painted};

/// The maximum number of children that are named.
const CHILDREN: usize = 10;

/// Names and texts. A line that continues the one before has no name.
type Lines = Vec<(&'static str, String)>;

/// Returns the title and the properties. Times are also shown relative to `now` if it is given.
pub(super) fn drawn(details: &InstanceDetails, liveness: &Liveness, now: Option<Timestamp>) -> String {
    let moment = |at: Timestamp| match now {
        Some(now) => format!("{at}  {}", painted(&apart(at, now), FAINT)),
        None => at.to_string(),
    };
    let row = &details.seen.row;
    let title = format!("{} {}\n\n", clean(&row.machine), clean(&row.key));
    let parts = [state(details, liveness, &moment), family(details), call(details, liveness, &moment), events(details, &moment)];
    title + &parts.concat().iter().map(|(name, what)| format!("  {name:<8}  {what}\n")).collect::<String>()
}

/// Returns the name for the line at this place of a list: the first line has it.
fn label(place: usize, name: &'static str) -> &'static str {
    if place == 0 { name } else { "" }
}

/// The state, its times and its values.
fn state(details: &InstanceDetails, liveness: &Liveness, moment: &impl Fn(Timestamp) -> String) -> Lines {
    let row = &details.seen.row;
    let mut lines = vec![
        ("state", row.state.as_deref().map_or_else(|| "none yet".to_owned(), clean)),
        ("status", ls::status(row.status, row.paused).drawn()),
    ];
    if row.status == Status::Error {
        lines.push(("error", painted(&clean(row.error.as_deref().unwrap_or_default()), BAD)));
    } else if !row.status.is_ended() {
        lines.push(("about", clean(&liveness.about(&details.seen))));
    }
    lines.extend(row.entered_at.map(|at| ("entered", moment(at))));
    lines.push(("created", moment(row.created_at)));
    lines.push(("changed", moment(row.updated_at)));
    lines.push(("version", row.version.to_string()));
    if let Some(record) = &row.record {
        lines.push(("record", clean(&String::from_utf8_lossy(record))));
    }
    for (place, field) in details.seen.fields.iter().enumerate() {
        lines.push((label(place, "fields"), format!("{} = {}", field.name, clean(&field.value))));
    }
    lines
}

/// The parent, and the children: their numbers and the first of them.
fn family(details: &InstanceDetails) -> Lines {
    let mut lines = Lines::new();
    lines.extend(details.seen.parent.as_ref().map(|parent| ("parent", relative(parent))));
    for (place, count) in details.seen.children.iter().enumerate() {
        let state = count.state.as_deref().map_or_else(|| "no state yet".to_owned(), |state| format!("`{}`", clean(state)));
        let status = ls::status(count.status, false).drawn();
        lines.push((label(place, "children"), format!("{} of `{}` in {state}, {status}", count.count, clean(&count.machine))));
    }
    let children: u64 = details.seen.children.iter().map(|count| count.count).sum();
    lines.extend(details.children.iter().take(CHILDREN).map(|child| ("", relative(child))));
    if children > CHILDREN as u64 {
        let (machine, key) = (clean(&details.seen.row.machine), clean(&details.seen.row.key));
        lines.push(("", painted(&format!("… and {} more: fsm ls --parent {machine}/{key}", children - CHILDREN as u64), FAINT)));
    }
    lines
}

/// The open call and its trace.
fn call(details: &InstanceDetails, liveness: &Liveness, moment: &impl Fn(Timestamp) -> String) -> Lines {
    let mut lines = Lines::new();
    if let Some(call) = &details.seen.call {
        let (verb, event) = (clean(&call.verb), clean(&call.event));
        let (attempt, snoozed, priority) = (call.attempt_of(), snoozed(call), with_priority(call));
        lines.push(("call", format!("`{verb}` on `{event}`, attempt {attempt}{snoozed}{priority}")));
        lines.push(("", progress(call, liveness, moment)));
        if let Some(shown) = &call.progress {
            lines.push(("progress", format!("{} at {}", clean(&shown.value.to_string()), moment(shown.at))));
        }
        lines.extend(call.last_error.as_deref().map(|error| ("", failure(call, error))));
    }
    lines.extend(details.trace.as_ref().map(|trace| ("trace", trace.trace_id().to_owned())));
    lines
}

/// The events that wait or are delivered later.
fn events(details: &InstanceDetails, moment: &impl Fn(Timestamp) -> String) -> Lines {
    let mut lines = Lines::new();
    for (place, waiting) in details.inbox.iter().enumerate() {
        lines.push((label(place, "inbox"), format!("`{}` since {}", clean(&waiting.event), moment(waiting.since))));
    }
    if let Some(full) = &details.full_inbox {
        let (events, since, next) = (full.events, moment(full.since), moment(full.next_at));
        lines.push(("outbox", format!("{events} events wait for room in the inbox since {since}, next delivery at {next}")));
    }
    for (place, timer) in details.timers.iter().enumerate() {
        let held = if timer.held { ", held until the transition under way has ended" } else { "" };
        let of = timer.state.as_deref().map_or_else(String::new, |state| format!(" of `{}`", clean(state)));
        lines.push((label(place, "timers"), format!("`{}`{of} at {}{held}", clean(&timer.event), moment(timer.due_at))));
    }
    lines
}

/// The priority, unless it is normal.
fn with_priority(call: &OpenCall) -> String {
    if call.priority.is_normal() { String::new() } else { format!(", {} priority", call.priority) }
}

/// The machine, the key, the state and the status.
fn relative(relative: &Relative) -> String {
    let state = relative.state.as_deref().map_or_else(|| "no state yet".to_owned(), |state| format!("`{}`", clean(state)));
    format!("{} {}  {state}, {}", clean(&relative.machine), clean(&relative.key), ls::status(relative.status, false).drawn())
}

/// The number of attempts that snoozed.
fn snoozed(call: &OpenCall) -> String {
    match call.snoozes {
        0 => String::new(),
        1 => ", of which 1 snoozed".to_owned(),
        snoozes => format!(", of which {snoozes} snoozed"),
    }
}

fn progress(call: &OpenCall, liveness: &Liveness, moment: &impl Fn(Timestamp) -> String) -> String {
    match (call.worker, liveness.lapse(call)) {
        (Some(worker), Some(Lapse { at: Some(at) })) => format!("was executed by session {worker}, whose lease ended at {}", moment(at)),
        (Some(worker), Some(Lapse { at: None })) => format!("was executed by session {worker}, which is gone"),
        (Some(worker), None) => format!("executes in session {worker}"),
        (None, _) => format!("due at {}", moment(call.next_at)),
    }
}

fn failure(call: &OpenCall, error: &str) -> String {
    let took = call.last_took.map_or_else(String::new, |took| format!(" after {}", short(took)));
    format!("the attempt before failed{took}: {}", painted(&clean(error), BAD))
}
