//! The schedules on the due page, and the acts of an operator on one of them.

use axum::Form;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::time::Timestamp;
use fsm_runtime::admin::schedules::{ScheduleAct, ScheduleState};
use fsm_store::schedules::ScheduleRow;
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Action;
use crate::format::{clean, time};
use crate::layout::{failed, said, token};
use crate::shared::Asked;

/// The fields of the form of a schedule.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Wanted {
    action: String,
    name: String,
}

fn act_of(name: &str) -> Option<ScheduleAct> {
    match name {
        "pause" => Some(ScheduleAct::Pause),
        "resume" => Some(ScheduleAct::Resume),
        "trigger" => Some(ScheduleAct::Trigger),
        "forget" => Some(ScheduleAct::Forget),
        _ => None,
    }
}

pub(crate) async fn act(asked: Asked, Form(wanted): Form<Wanted>) -> Response {
    if !asked.may(Action::ActOnOne) {
        return said(&asked, StatusCode::FORBIDDEN, "you may look, and not act");
    }
    let Some(act) = act_of(&wanted.action) else { return said(&asked, StatusCode::BAD_REQUEST, "there is no such act") };
    let actor = Some(asked.actor.name.as_str()).filter(|name| !name.is_empty());
    let done = match asked.admin_without_permit().await {
        Ok(admin) => admin.operate_schedule(&wanted.name, act, actor).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => Redirect::to(&asked.base.to("/due")).into_response(),
        Err(error) => failed(&asked, &error),
    }
}

/// The table of schedules; nothing if no program has declared one.
pub(crate) fn table(asked: &Asked, schedules: &[ScheduleRow], now: Timestamp) -> Markup {
    let may_act = asked.may(Action::ActOnOne);
    html! {
        @if !schedules.is_empty() {
            h2 { "Schedules" }
            div class="wide" { table {
                thead { tr {
                    th { "name" } th { "schedule" } th { "zone" } th { "machine" } th class="number" { "next" } th class="number" { "last" }
                    th { "missed" } th { "state" } @if may_act { th { "act" } }
                } }
                tbody {
                    @for row in schedules { tr {
                        td { (clean(&row.name)) }
                        td { code { (clean(&row.definition.timetable)) } }
                        td { (clean(&row.definition.zone)) }
                        td { a href=(asked.base.machine(&row.definition.machine)) { (clean(&row.definition.machine)) } }
                        td class="number" { @if let Some(next) = row.next_at.filter(|_| !row.paused) { (time(next, now)) } @else { "–" } }
                        td class="number" { (last(asked, row, now)) }
                        td { (clean(&row.definition.missed)) }
                        td { (state(row, now)) }
                        @if may_act { td { (buttons(asked, row, now)) } }
                    } }
                }
            } }
        }
    }
}

fn last(asked: &Asked, row: &ScheduleRow, now: Timestamp) -> Markup {
    html! {
        @match (row.last_at, &row.last_key) {
            (Some(at), Some(key)) => a href=(asked.base.instance(&row.definition.machine, key)) { (time(at, now)) },
            (Some(at), None) => (time(at, now)),
            _ => "–",
        }
    }
}

/// The state with its icon and its word, and the reason if the last moment could not be sent.
fn state(row: &ScheduleRow, now: Timestamp) -> Markup {
    let state = ScheduleState::of(row, now);
    let (class, icon) = match state {
        ScheduleState::Active => ("running", "●"),
        ScheduleState::Paused => ("paused", "‖"),
        ScheduleState::Failing | ScheduleState::Undeclared => ("error", "✕"),
    };
    html! {
        span class={ "status " (class) } { span aria-hidden="true" { (icon) } " " (state) }
        @if row.requested_at.is_some() { " triggered; waits for a worker" }
        @if state == ScheduleState::Failing { @if let Some(why) = &row.error { p class="quiet" { (clean(why)) } } }
    }
}

fn buttons(asked: &Asked, row: &ScheduleRow, now: Timestamp) -> Markup {
    let acts: &[(&str, &str)] = match (ScheduleState::of(row, now), row.paused) {
        (ScheduleState::Undeclared, _) => &[("forget", "Forget")],
        (_, true) => &[("resume", "Resume"), ("trigger", "Trigger")],
        (_, false) => &[("pause", "Pause"), ("trigger", "Trigger")],
    };
    html! {
        form method="post" action=(asked.base.to("/schedules")) {
            (token(asked))
            input type="hidden" name="name" value=(row.name);
            @for (act, word) in acts { button name="action" value=(act) aria-label={ (word) " " (clean(&row.name)) } { (word) } " " }
        }
    }
}
