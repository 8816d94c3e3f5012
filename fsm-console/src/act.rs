//! An operator's act on one instance: POST, then back to its page.

use axum::Form;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::decide::operate::Act;
use fsm_runtime::error::Error;
use serde::Deserialize;

use crate::access::Action;
use crate::layout::{failed, said};
use crate::path::query;
use crate::shared::Asked;

/// The fields of the forms of an instance.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Wanted {
    action: String,
    reason: String,
    event: String,
    payload: String,
}

/// The act of that name.
pub(crate) fn act_of(name: &str) -> Option<Act> {
    match name {
        "retry" => Some(Act::Retry),
        "cancel" => Some(Act::Cancel),
        "pause" => Some(Act::Pause),
        "resume" => Some(Act::Resume),
        "skip" => Some(Act::Skip),
        _ => None,
    }
}

pub(crate) async fn act(asked: Asked, Path((machine, key)): Path<(String, String)>, Form(wanted): Form<Wanted>) -> Response {
    if !asked.may(Action::ActOnOne) {
        return said(&asked, StatusCode::FORBIDDEN, "you may look, and not act");
    }
    let done = match (wanted.action.as_str(), act_of(&wanted.action)) {
        ("send", _) => send(&asked, &machine, &key, &wanted).await,
        (_, Some(act)) => operate(&asked, &machine, &key, act, &wanted.reason).await,
        _ => return said(&asked, StatusCode::BAD_REQUEST, "there is no such act"),
    };
    match done {
        Ok(done) => Redirect::to(&(asked.base.instance(&machine, &key) + &query(&[("done", &done)]))).into_response(),
        Err(error) => failed(&asked, &error),
    }
}

async fn send(asked: &Asked, machine: &str, key: &str, wanted: &Wanted) -> Result<String, Error> {
    let sent = asked.admin().await?.send(machine, key, &wanted.event, &wanted.payload).await?;
    Ok(format!("sent {}: {:?}", wanted.event, sent.outcome).to_lowercase())
}

/// Carries out an act in the name of whoever asks.
pub(crate) async fn operate(asked: &Asked, machine: &str, key: &str, act: Act, reason: &str) -> Result<String, Error> {
    let done = format!("done: {act:?}").to_lowercase();
    let mut request = asked.admin().await?.operate(machine, key, act);
    if !reason.trim().is_empty() {
        request = request.reason(reason.trim());
    }
    if !asked.actor.name.is_empty() {
        request = request.actor(&asked.actor.name);
    }
    request.await?;
    Ok(done)
}
