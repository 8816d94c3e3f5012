//! An operator's act on one instance: a POST request, then a redirect to the instance's page.

use axum::Form;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::decide::operate::Act;
use fsm_core::retry::Retry;
use fsm_runtime::error::Error;
use serde::Deserialize;

use crate::access::Action;
use crate::layout::{failed, said};
use crate::pages::policy::{Fields, policy as in_words};
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
    #[serde(flatten)]
    policy: Fields,
}

/// Returns the act of that name.
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
        ("policy", _) => match wanted.policy.policy() {
            Ok(policy) => set_policy(&asked, (&machine, &key), policy, &wanted.reason).await,
            Err(why) => return said(&asked, StatusCode::BAD_REQUEST, &format!("that is no retry policy: {why}")),
        },
        (_, Some(act)) => operate(&asked, &machine, &key, act, &wanted.reason).await,
        _ => return said(&asked, StatusCode::BAD_REQUEST, "there is no such act"),
    };
    match done {
        Ok(done) => Redirect::to(&(asked.base.instance(&machine, &key) + &query(&[("done", &done)]))).into_response(),
        Err(error) => failed(&asked, &error),
    }
}

async fn send(asked: &Asked, machine: &str, key: &str, wanted: &Wanted) -> Result<String, Error> {
    let sent = asked.admin_without_permit().await?.send(machine, key, &wanted.event, &wanted.payload).await?;
    Ok(format!("sent {}: {:?}", wanted.event, sent.outcome).to_lowercase())
}

/// Gives the open call another policy. It keeps the errors that are not retried and the catch verb of the present policy.
async fn set_policy(asked: &Asked, (machine, key): (&str, &str), asked_for: Retry, reason: &str) -> Result<String, Error> {
    let newest = asked.admin().await?.details(machine, key).await?.attempts.pop();
    let policy = match newest.and_then(|attempt| attempt.retry_state.policy) {
        Some(Retry { give_up_on, give_up_if, catch, .. }) => Retry { give_up_on, give_up_if, catch, ..asked_for },
        None => asked_for,
    };
    operate(asked, machine, key, Act::SetRetry(Box::new(policy)), reason).await
}

/// Carries out an act in the name of the actor.
pub(crate) async fn operate(asked: &Asked, machine: &str, key: &str, act: Act, reason: &str) -> Result<String, Error> {
    let done = match &act {
        Act::SetRetry(policy) => format!("the retry policy is now: {}", in_words(policy)),
        act => format!("done: {act:?}").to_lowercase(),
    };
    let mut request = asked.admin_without_permit().await?.operate(machine, key, act);
    if !reason.trim().is_empty() {
        request = request.reason(reason.trim());
    }
    if !asked.actor.name.is_empty() {
        request = request.actor(&asked.actor.name);
    }
    request.await?;
    Ok(done)
}
