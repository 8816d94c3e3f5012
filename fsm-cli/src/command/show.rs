//! `fsm show`: shows one instance with its state and its history.

mod properties;
mod timeline;

use std::time::Duration;

use fsm_core::instance::Status;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::look::InstanceDetails;
use fsm_runtime::handle::history::HistoryEntry;
use serde_json::{Value, json};

use self::timeline::Drawing;
use super::errors::full;
use super::liveness::Liveness;
use super::ls;
use super::session::Session;
use crate::args::Show;
use crate::problem::Problem;

/// The interval at which a terminal is redrawn, so that relative times stay correct.
const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(session: &mut Session<'_, '_>, show: &Show) -> Result<(), Problem> {
    let admin = session.to_read_key(&show.key).await?;
    admin.machine(&show.machine)?;
    let mut details = admin.details(&show.machine, &show.key).await?;
    let liveness = Liveness::of(&admin).await?;
    if session.is_json {
        session.stage.json(&as_json(&details, &liveness))?;
    } else {
        whole(session, &admin, show, &details, &liveness)?;
    }
    if show.follow {
        details = follow(session, &admin, show, details).await?;
    }
    let is_in_error = details.seen.row.status == Status::Error;
    if show.exit_status && is_in_error { Err(Problem::InError) } else { Ok(()) }
}

/// Prints the whole instance.
fn whole(session: &mut Session<'_, '_>, admin: &Admin, show: &Show, details: &InstanceDetails, liveness: &Liveness) -> Result<(), Problem> {
    let now = session.stage.width.map(|_| admin.now());
    let goes_on = show.follow && !details.seen.row.status.is_ended();
    let drawing = Drawing { goes_on, width: session.stage.width, in_full: show.all };
    let text = properties::drawn(details, liveness, now) + "\n" + &timeline::drawn(&details.entries, &drawing, |_| true);
    session.stage.text(&text)
}

/// Prints changes until the instance has ended. A terminal is redrawn; other outputs get only the new entries.
async fn follow(
    session: &mut Session<'_, '_>,
    admin: &Admin,
    show: &Show,
    mut details: InstanceDetails,
) -> Result<InstanceDetails, Problem> {
    let mut sight = admin.watch(&show.machine, &show.key);
    let redraws = session.stage.width.is_some() && !session.is_json;
    loop {
        session.stage.flush()?;
        let tick = if redraws { TICK } else { Duration::MAX };
        if let Ok(moved) = tokio::time::timeout(tick, sight.next()).await {
            let Some(moved) = moved else { return Ok(details) };
            moved?;
        }
        let later = admin.details(&show.machine, &show.key).await?;
        if redraws {
            session.stage.clear()?;
            whole(session, admin, show, &later, &Liveness::of(admin).await?)?;
        } else {
            news(session, &details, &later)?;
        }
        details = later;
    }
}

/// Prints the entries since the last read.
fn news(session: &mut Session<'_, '_>, before: &InstanceDetails, now: &InstanceDetails) -> Result<(), Problem> {
    let is_news = |entry: &HistoryEntry| !before.entries.contains(entry);
    if session.is_json {
        return now.entries.iter().filter(|entry| is_news(entry)).try_for_each(|entry| session.stage.json(&json!(entry)));
    }
    let goes_on = !now.seen.row.status.is_ended();
    let drawing = Drawing { goes_on, width: session.stage.width, in_full: true };
    session.stage.text(&timeline::drawn(&now.entries, &drawing, is_news))
}

fn as_json(details: &InstanceDetails, liveness: &Liveness) -> Value {
    let mut shown = ls::as_json(&details.seen, liveness);
    let inbox: Vec<_> =
        details.inbox.iter().map(|one| json!({ "event": one.event, "call": one.call, "since": one.since.to_string() })).collect();
    let timers: Vec<_> = details
        .timers
        .iter()
        .map(|timer| json!({ "state": timer.state, "event": timer.event, "due_at": timer.due_at.to_string(), "held": timer.held }))
        .collect();
    shown["parent"] = json!(details.seen.parent);
    shown["children"] = json!({ "counts": details.seen.children, "first": details.children });
    shown["inbox"] = json!(inbox);
    shown["outbox"] = json!(details.full_inbox.as_ref().map(full));
    shown["timers"] = json!(timers);
    shown["trace"] = json!(details.trace);
    shown["timeline"] = json!(details.entries);
    shown
}
