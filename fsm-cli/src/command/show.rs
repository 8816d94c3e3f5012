//! `fsm show`: shows one instance with its state and its history.

mod timeline;

use std::time::Duration;

use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::look::Story;
use fsm_runtime::children::Relative;
use fsm_runtime::handle::activity::OpenCall;
use fsm_runtime::handle::history::HistoryEntry;
use serde_json::{Value, json};

use self::timeline::Drawing;
use super::errors::full;
use super::liveness::{Lapse, Liveness};
use super::ls;
use super::session::Session;
use crate::args::Show;
use crate::clean::clean;
use crate::problem::Problem;
use crate::stage::{apart, short};
use crate::table::{BAD, FAINT, painted};

/// The maximum number of children that are named.
const CHILDREN: usize = 10;
/// The interval at which a terminal is redrawn, so that relative times stay correct.
const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(session: &mut Session<'_, '_>, show: &Show) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    admin.machine(&show.machine)?;
    let mut story = admin.story(&show.machine, &show.key).await?;
    let liveness = Liveness::of(&admin).await?;
    if session.is_json {
        session.stage.json(&as_json(&story, &liveness))?;
    } else {
        whole(session, &admin, show, &story, &liveness)?;
    }
    if show.follow {
        story = follow(session, &admin, show, story).await?;
    }
    let is_in_error = story.seen.row.status == Status::Error;
    if show.exit_status && is_in_error { Err(Problem::InError) } else { Ok(()) }
}

/// Prints the whole instance.
fn whole(session: &mut Session<'_, '_>, admin: &Admin, show: &Show, story: &Story, liveness: &Liveness) -> Result<(), Problem> {
    let now = session.stage.width.map(|_| admin.now());
    let goes_on = show.follow && !story.seen.row.status.is_ended();
    let drawing = Drawing { goes_on, width: session.stage.width, in_full: show.all };
    let text = drawn(story, liveness, now) + "\n" + &timeline::drawn(&story.entries, &drawing, |_| true);
    session.stage.text(&text)
}

/// Prints changes until the instance has ended. A terminal is redrawn; other outputs get only the new entries.
async fn follow(session: &mut Session<'_, '_>, admin: &Admin, show: &Show, mut story: Story) -> Result<Story, Problem> {
    let mut sight = admin.watch(&show.machine, &show.key);
    let redraws = session.stage.width.is_some() && !session.is_json;
    loop {
        session.stage.flush()?;
        let tick = if redraws { TICK } else { Duration::MAX };
        if let Ok(moved) = tokio::time::timeout(tick, sight.next()).await {
            let Some(moved) = moved else { return Ok(story) };
            moved?;
        }
        let later = admin.story(&show.machine, &show.key).await?;
        if redraws {
            session.stage.clear()?;
            whole(session, admin, show, &later, &Liveness::of(admin).await?)?;
        } else {
            news(session, &story, &later)?;
        }
        story = later;
    }
}

/// Prints the entries since the last read.
fn news(session: &mut Session<'_, '_>, before: &Story, now: &Story) -> Result<(), Problem> {
    let is_news = |entry: &HistoryEntry| !before.entries.contains(entry);
    if session.is_json {
        return now.entries.iter().filter(|entry| is_news(entry)).try_for_each(|entry| session.stage.json(&json!(entry)));
    }
    let goes_on = !now.seen.row.status.is_ended();
    let drawing = Drawing { goes_on, width: session.stage.width, in_full: true };
    session.stage.text(&timeline::drawn(&now.entries, &drawing, is_news))
}

/// The properties of the instance, one on each line. Times are also shown relative to `now` if it is given.
fn drawn(story: &Story, liveness: &Liveness, now: Option<Timestamp>) -> String {
    let row = &story.seen.row;
    let moment = |at: Timestamp| match now {
        Some(now) => format!("{at}  {}", painted(&apart(at, now), FAINT)),
        None => at.to_string(),
    };
    let mut lines = vec![
        ("state", row.state.as_deref().map_or_else(|| "none yet".to_owned(), clean)),
        ("status", ls::status(row.status, row.paused).drawn()),
    ];
    if row.status == Status::Error {
        lines.push(("error", painted(&clean(row.error.as_deref().unwrap_or_default()), BAD)));
    } else if !row.status.is_ended() {
        lines.push(("about", clean(&liveness.about(&story.seen))));
    }
    lines.extend(row.entered_at.map(|at| ("entered", moment(at))));
    lines.push(("created", moment(row.created_at)));
    lines.push(("changed", moment(row.updated_at)));
    lines.push(("version", row.version.to_string()));
    if let Some(record) = &row.record {
        lines.push(("record", clean(&String::from_utf8_lossy(record))));
    }
    let label = |place: usize, name: &'static str| if place == 0 { name } else { "" };
    for (place, field) in story.seen.fields.iter().enumerate() {
        lines.push((label(place, "fields"), format!("{} = {}", field.name, clean(&field.value))));
    }
    lines.extend(story.seen.parent.as_ref().map(|parent| ("parent", relative(parent))));
    for (place, count) in story.seen.children.iter().enumerate() {
        let state = count.state.as_deref().map_or_else(|| "no state yet".to_owned(), |state| format!("`{}`", clean(state)));
        let status = ls::status(count.status, false).drawn();
        lines.push((label(place, "children"), format!("{} of `{}` in {state}, {status}", count.count, clean(&count.machine))));
    }
    let children: u64 = story.seen.children.iter().map(|count| count.count).sum();
    lines.extend(story.children.iter().take(CHILDREN).map(|child| ("", relative(child))));
    if children > CHILDREN as u64 {
        let (machine, key) = (clean(&row.machine), clean(&row.key));
        lines.push(("", painted(&format!("… and {} more: fsm ls --parent {machine}/{key}", children - CHILDREN as u64), FAINT)));
    }
    if let Some(call) = &story.seen.call {
        lines.push((
            "call",
            format!(
                "`{}` on `{}`, attempt {}{}{}",
                clean(&call.verb),
                clean(&call.event),
                call.attempt_of(),
                snoozed(call),
                with_priority(call)
            ),
        ));
        lines.push(("", progress(call, liveness, &moment)));
        if let Some(shown) = &call.progress {
            lines.push(("progress", format!("{} at {}", clean(&shown.value.to_string()), moment(shown.at))));
        }
        lines.extend(call.last_error.as_deref().map(|error| ("", failure(call, error))));
    }
    lines.extend(story.trace.as_ref().map(|trace| ("trace", trace.trace_id().to_owned())));
    for (place, waiting) in story.inbox.iter().enumerate() {
        lines.push((label(place, "inbox"), format!("`{}` since {}", clean(&waiting.event), moment(waiting.since))));
    }
    if let Some(full) = &story.full_inbox {
        let (events, since, next) = (full.events, moment(full.since), moment(full.next_at));
        lines.push(("outbox", format!("{events} events wait for room in the inbox since {since}, next delivery at {next}")));
    }
    for (place, timer) in story.timers.iter().enumerate() {
        let held = if timer.held { ", held until the transition under way has ended" } else { "" };
        let of = timer.state.as_deref().map_or_else(String::new, |state| format!(" of `{}`", clean(state)));
        lines.push((label(place, "timers"), format!("`{}`{of} at {}{held}", clean(&timer.event), moment(timer.due_at))));
    }
    let line = |(name, what): &(&str, String)| format!("  {name:<8}  {what}\n");
    format!("{} {}\n\n", clean(&row.machine), clean(&row.key)) + &lines.iter().map(line).collect::<String>()
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

/// How many of the attempts snoozed.
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

fn as_json(story: &Story, liveness: &Liveness) -> Value {
    let mut shown = ls::as_json(&story.seen, liveness);
    let inbox: Vec<_> =
        story.inbox.iter().map(|one| json!({ "event": one.event, "call": one.call, "since": one.since.to_string() })).collect();
    let timers: Vec<_> = story
        .timers
        .iter()
        .map(|timer| json!({ "state": timer.state, "event": timer.event, "due_at": timer.due_at.to_string(), "held": timer.held }))
        .collect();
    shown["parent"] = json!(story.seen.parent);
    shown["children"] = json!({ "counts": story.seen.children, "first": story.children });
    shown["inbox"] = json!(inbox);
    shown["outbox"] = json!(story.full_inbox.as_ref().map(full));
    shown["timers"] = json!(timers);
    shown["trace"] = json!(story.trace);
    shown["timeline"] = json!(story.entries);
    shown
}
