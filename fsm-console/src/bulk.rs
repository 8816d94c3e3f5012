//! An act on all instances that match: a plan with their number, a confirmation, and a page with the progress and the refusals.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, RawForm};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::decide::operate::Act;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use futures_util::StreamExt;
use maud::html;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::access::Action;
use crate::act::{act_of, operate};
use crate::bulk_runs::BulkRun;
use crate::format::{clean, grouped};
use crate::layout::{Page, document, failed, said, token};
use crate::pages::instances::{Facets, SELECTED};
use crate::path::encoded;
use crate::shared::Asked;

/// The maximum number of instances of an act. The command line has no limit.
const MOST: usize = 10_000;
/// Above this number, the user types the number to confirm the act.
const TYPED_ABOVE: usize = 100;
/// The number of instances that are read at a time, and of acts that are carried out at a time.
const PAGE: u32 = 500;
const AT_A_TIME: usize = 32;
/// The maximum number of refusals and keys that a page shows.
const SHOWN: usize = 200;

#[derive(Deserialize)]
struct Wanted {
    action: String,
    #[serde(default)]
    reason: String,
    /// The number that the user typed.
    #[serde(default)]
    confirmed: String,
    /// [`SELECTED`] limits the act to the selected keys. Otherwise it is for all instances that match.
    #[serde(default)]
    only: String,
    #[serde(skip)]
    selected: Vec<String>,
    #[serde(flatten)]
    facets: Facets,
}

impl Wanted {
    /// Reads a form, in which `key` may be there several times. Keys are percent-encoded, because browsers change line ends.
    fn read(form: &[u8]) -> Result<Wanted, serde_json::Error> {
        let (keys, others): (Vec<_>, Vec<_>) = form_urlencoded::parse(form).into_owned().partition(|(name, _)| name == "key");
        let others = others.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        let mut wanted: Wanted = serde_json::from_value(Value::Object(others))?;
        wanted.facets.after = String::new();
        let keys = keys.iter().map(|(_, key)| percent_decode_str(key).decode_utf8_lossy().into_owned());
        wanted.selected = keys.collect::<BTreeSet<_>>().into_iter().collect();
        Ok(wanted)
    }

    fn has_selection(&self) -> bool {
        self.only == SELECTED
    }

    /// The keys of the act, and whether there are more than an act may have.
    async fn keys(&self, admin: &Admin) -> Result<(Vec<String>, bool), Error> {
        match self.has_selection() {
            true => Ok((self.selected.clone(), false)),
            false => matching(admin, &self.facets).await,
        }
    }

    /// The fields of the plan, which the confirmation repeats.
    fn repeated(&self) -> Vec<(&str, Cow<'_, str>)> {
        let fixed = self.facets.pairs().into_iter().chain([("action", self.action.as_str()), ("only", self.only.as_str())]);
        let selected = self.selected.iter().map(|key| ("key", Cow::Owned(encoded(key))));
        fixed.map(|(name, value)| (name, Cow::Borrowed(value))).chain(selected).collect()
    }
}

/// Returns the keys of all instances that match, and whether there are more than an act may have.
async fn matching(admin: &Admin, facets: &Facets) -> Result<(Vec<String>, bool), Error> {
    admin.machine(&facets.machine)?;
    let (mut keys, mut filter) = (Vec::new(), facets.filter(PAGE, admin.now()));
    loop {
        let page = admin.page(&facets.machine, &filter).await?;
        keys.extend(page.instances.into_iter().map(|seen| seen.row.key));
        // An act does not need the value that cannot be decoded, so unreadable instances are included.
        keys.extend(page.unreadable.into_iter().map(|(_, one)| one.key));
        match page.next {
            Some(_) if keys.len() >= MOST => {
                keys.truncate(MOST);
                return Ok((keys, true));
            }
            Some(next) => filter.after = Some(next),
            None => return Ok((keys, false)),
        }
    }
}

/// The act that a form asks for, if the user may do it.
fn permitted(asked: &Asked, form: &[u8]) -> Result<(Wanted, Act), (StatusCode, &'static str)> {
    if !asked.may(Action::ActOnMany) {
        return Err((StatusCode::FORBIDDEN, "you may not act on many instances at once"));
    }
    let wanted = Wanted::read(form).map_err(|_| (StatusCode::BAD_REQUEST, "the form cannot be read"))?;
    let act = act_of(&wanted.action).ok_or((StatusCode::BAD_REQUEST, "there is no such act"))?;
    match wanted.has_selection() && wanted.selected.is_empty() {
        true => Err((StatusCode::BAD_REQUEST, "no instance is selected: nothing was done")),
        false => Ok((wanted, act)),
    }
}

/// Shows the plan of an act. Nothing changes.
pub(crate) async fn plan(asked: Asked, RawForm(form): RawForm) -> Response {
    let (wanted, _) = match permitted(&asked, &form) {
        Ok(permitted) => permitted,
        Err((status, why)) => return said(&asked, status, why),
    };
    let facets = &wanted.facets;
    let found = async {
        let admin = asked.admin().await?;
        Ok((wanted.keys(&admin).await?, admin.now()))
    };
    let ((keys, is_more), now) = match found.await {
        Ok(found) => found,
        Err(error) => return failed(&asked, &error),
    };
    let what = match (wanted.has_selection(), keys.len()) {
        (true, 1) => "is selected",
        (true, _) => "are selected",
        (false, 1) => "matches",
        (false, _) => "match",
    };
    let plan = html! {
        p { strong { (grouped(keys.len() as u64)) } @if keys.len() == 1 { " instance" } @else { " instances" } " of " code { (facets.machine) } " " (what) ". Nothing has happened yet." }
        @if is_more { p class="notice warn" { "There are more: an act goes to at most " (grouped(MOST as u64)) " instances at once." } }
        @if !keys.is_empty() {
            form class="fields" method="post" action=(asked.base.to("/bulk/run")) {
                (token(&asked))
                @for (name, value) in wanted.repeated() { input type="hidden" name=(name) value=(value); }
                label { "reason" input name="reason" required maxlength="1000" size="40"; }
                @if keys.len() > TYPED_ABOVE { label { "type " (keys.len()) " to confirm" input name="confirmed" required autocomplete="off" size="8"; } }
                @else { input type="hidden" name="confirmed" value=(keys.len()); }
                button { (clean(&wanted.action)) " " (keys.len()) }
            }
        }
        ul class="keys" { @for key in keys.iter().take(SHOWN) { li { a href=(asked.base.instance(&facets.machine, key)) { (clean(key)) } } } }
        @if keys.len() > SHOWN { p class="quiet" { "and " (keys.len() - SHOWN) " more" } }
    };
    let which = if wanted.has_selection() { "the selected" } else { "all that match" };
    document(&asked, &Page::new(format!("{} {which}", wanted.action), "", now).section("plan", plan))
}

/// Begins the act if the number of matching instances is the one that the user confirmed.
pub(crate) async fn begin(asked: Asked, RawForm(form): RawForm) -> Response {
    let (wanted, act) = match permitted(&asked, &form) {
        Ok(permitted) => permitted,
        Err((status, why)) => return said(&asked, status, why),
    };
    let found = async {
        let admin = asked.admin().await?;
        wanted.keys(&admin).await
    };
    let keys = match found.await {
        Ok((keys, _)) => keys,
        Err(error) => return failed(&asked, &error),
    };
    if wanted.confirmed.trim() != keys.len().to_string() {
        let text = format!("{} instances match now, and `{}` were confirmed: nothing was done", keys.len(), wanted.confirmed.trim());
        return said(&asked, StatusCode::CONFLICT, &text);
    }
    let run = Arc::new(BulkRun::new(wanted.facets.machine, wanted.action, keys.len()));
    let id = asked.shared.bulk_runs.keep(Arc::clone(&run)).await;
    let (acting, reason) = (asked.clone(), wanted.reason);
    tokio::spawn(async move {
        let (acting, run, reason, act) = (&acting, &run, &reason, &act);
        futures_util::stream::iter(keys)
            .for_each_concurrent(AT_A_TIME, |key| async move {
                if let Err(error) = operate(acting, &run.machine, &key, act.clone(), reason).await {
                    run.refused.lock().await.push((key, error.to_string()));
                }
                run.count();
            })
            .await;
    });
    Redirect::to(&asked.base.to(&format!("/bulk/{id}"))).into_response()
}

pub(crate) async fn show(asked: Asked, Path(id): Path<Uuid>) -> Response {
    let admin = match asked.admin().await {
        Ok(admin) => admin,
        Err(error) => return failed(&asked, &error),
    };
    match page(&asked, &admin, id).await {
        Some(page) => document(&asked, &page),
        None => said(&asked, StatusCode::NOT_FOUND, "this bulk act is not remembered any more; the history of each instance is"),
    }
}

/// Shows the progress of a bulk act.
pub(crate) async fn page(asked: &Asked, admin: &Admin, id: Uuid) -> Option<Page> {
    let run = asked.shared.bulk_runs.get(id).await?;
    let done = run.done();
    let refused = run.refused.lock().await;
    let progress = html! {
        p { (grouped(done as u64)) " of " (grouped(run.total as u64)) " done, " (refused.len()) " refused." }
        progress max=(run.total) value=(done) { (done) " of " (run.total) }
        @if !refused.is_empty() {
            h2 { "Refused" }
            div class="wide" { table {
                thead { tr { th { "key" } th { "why" } } }
                tbody { @for (key, why) in refused.iter().take(SHOWN) { tr { td class="key" { a href=(asked.base.instance(&run.machine, key)) data-row { (clean(key)) } } td class="text" { (clean(why)) } } } }
            } }
            @if refused.len() > SHOWN { p class="quiet" { "and " (refused.len() - SHOWN) " more" } }
        }
        p { a href=(asked.base.instances(&[("machine", &run.machine)])) { "all instances of " (run.machine) } }
    };
    Some(Page::new(format!("{} {}", run.action, run.total), format!("/bulk/{id}"), admin.now()).section("progress", progress))
}
