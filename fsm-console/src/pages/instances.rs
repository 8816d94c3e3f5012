//! The list of instances: facets, a search by key, and acts on all instances that match.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::duration;
use fsm_core::ids::InstanceId;
use fsm_core::instance::Status;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::{Error, ErrorKind};
use fsm_runtime::handle::instance_view::InstanceView;
use fsm_store::pages::{After, PageFilter};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use crate::access::Action;
use crate::format::{clean, first_line, past, status, time};
use crate::layout::{Page, document, empty, failed, only, said, token};
use crate::path::{encoded, query};
use crate::shared::Asked;

/// The maximum number of rows of a page.
const ROWS: u32 = 50;
/// The number of instances of one status that are examined for a page if a condition has no index.
pub(crate) const LOOK_AT: u32 = 20_000;

/// The facets of a list, which are the query of its URL.
#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(crate) struct Facets {
    pub(crate) machine: String,
    /// A status, or `retrying` or `paused`.
    pub(crate) status: String,
    pub(crate) state: String,
    pub(crate) error: String,
    /// The prefix of the keys.
    pub(crate) prefix: String,
    /// The duration for which the instances have not changed, such as `1h`.
    pub(crate) unchanged: String,
    /// The end of the previous page: the id of an instance, or `key:` and a key.
    pub(crate) after: String,
    /// Among them the values of search fields, with `field.` before their names.
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, String>,
}

/// The choices of `unchanged`.
const UNCHANGED: [(&str, &str); 5] = [("1m", "1 minute"), ("1h", "1 hour"), ("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days")];

/// The id of the form for the selected instances.
pub(crate) const SELECTED: &str = "selected";

/// The beginning of the parameters of search fields.
const FIELD: &str = "field.";

impl Facets {
    /// The facets as pairs for a query.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        let Facets { machine, status, state, error, prefix, unchanged, after, .. } = self;
        let fixed: [(&str, &str); 7] = [
            ("machine", machine),
            ("status", status),
            ("state", state),
            ("error", error),
            ("prefix", prefix),
            ("unchanged", unchanged),
            ("after", after),
        ];
        let fields = self.others.iter().filter(|(name, _)| name.starts_with(FIELD));
        fixed.into_iter().chain(fields.map(|(name, value)| (name.as_str(), value.as_str()))).collect()
    }

    fn search(&self) -> Vec<SearchField> {
        let fields = self.others.iter().filter(|(_, value)| !value.is_empty());
        fields.filter_map(|(name, value)| Some(SearchField::new(name.strip_prefix(FIELD)?, value))).collect()
    }

    /// True if they exclude no instance of the machine.
    fn is_every(&self) -> bool {
        self.pairs().iter().all(|(name, value)| *name == "machine" || value.is_empty())
    }

    /// The facets as a filter for one machine. An unknown status, duration or cursor is ignored.
    pub(crate) fn filter(&self, limit: u32, now: Timestamp) -> PageFilter {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        PageFilter {
            parent: None,
            status: match self.status.as_str() {
                "retrying" | "paused" | "" => None,
                word => serde_json::from_value(serde_json::Value::from(word)).ok(),
            },
            state: text(&self.state),
            paused: (self.status == "paused").then_some(true),
            error: text(&self.error),
            retrying: self.status == "retrying",
            unchanged_since: duration::parse(&self.unchanged).ok().map(|age| now - age),
            after: self.after(),
            key_prefix: text(&self.prefix),
            search: self.search(),
            limit,
            newest_first: true,
            look_at_most: Some(LOOK_AT),
        }
    }
}

impl Facets {
    fn after(&self) -> Option<After> {
        match self.after.strip_prefix("key:") {
            Some(key) => Some(After::Key(key.to_owned())),
            None => Uuid::parse_str(&self.after).ok().map(|id| After::Instance(InstanceId(id))),
        }
    }
}

/// The end of a page as a facet.
fn cursor(after: After) -> String {
    match after {
        After::Instance(id) => id.0.to_string(),
        After::Key(key) => format!("key:{key}"),
    }
}

pub(crate) async fn page(asked: &Asked, admin: &Admin, facets: &Facets) -> Result<Page, Error> {
    let now = admin.now();
    let path = format!("/instances{}", query(&facets.pairs()));
    let machine = match (facets.machine.as_str(), admin.machines()) {
        ("", [only]) => only.machine.name.clone(),
        (name, _) => name.to_owned(),
    };
    let facets = Facets { machine: machine.clone(), ..facets.clone() };
    let page = Page::new("Instances", path, now).section("facets", form(asked, admin, &facets));
    if machine.is_empty() {
        let choice = html! {
            p { "Choose a machine:" }
            ul class="choice" { @for known in admin.machines() { li { a href=(asked.base.instances(&[("machine", &known.machine.name)])) data-row { (known.machine.name) } } } }
        };
        return Ok(page.section("rows", choice));
    }
    admin.machine(&machine)?;
    let listed = admin.page(&machine, &facets.filter(ROWS, now)).await?;
    let can_select = asked.may(Action::ActOnMany);
    let is_empty = listed.instances.is_empty() && listed.unreadable.is_empty();
    let next = listed.next.map(|next| Facets { after: cursor(next), ..facets.clone() });
    let rows = html! {
        @if is_empty {
            (empty(if facets.is_every() { "There is no instance yet: the first event that a program sends to a key starts one." } else { "No instance matches." }))
        }
        @else {
            div class="wide" { table {
                thead { tr { @if can_select { th aria-label="selected" {} } th { "key" } th { "state" } th { "status" } th { "about" } th class="number" { "changed" } th class="number" { "created" } } }
                tbody {
                    @for seen in &listed.instances { (row(asked, seen, can_select, now)) }
                    @for (_, one) in &listed.unreadable { tr { @if can_select { td {} } td class="key" { (clean(&one.key)) } td class="error" colspan="5" { "unreadable: " (clean(&one.why)) } } }
                }
            } }
        }
        @if listed.was_cut { p class="quiet" { "The page ends here because " (LOOK_AT) " instances were examined. The next page goes on." } }
        @if !facets.after.is_empty() || next.is_some() {
            nav class="pages" aria-label="More instances" {
                @if !facets.after.is_empty() { a href=(asked.base.instances(&Facets { after: String::new(), ..facets.clone() }.pairs())) data-key="[" { "newest" } }
                @if let Some(next) = &next { a rel="next" href=(asked.base.instances(&next.pairs())) data-key="]" { "older" } }
            }
        }
    };
    Ok(page
        .section("rows", rows)
        .section("acts", only(asked, Action::ActOnMany, || if is_empty { Markup::default() } else { acts(asked, &facets) })))
}

fn row(asked: &Asked, seen: &InstanceView, can_select: bool, now: Timestamp) -> Markup {
    let row = &seen.row;
    html! {
        tr {
            @if can_select { td { input type="checkbox" form=(SELECTED) name="key" value=(encoded(&row.key)) aria-label={ "select " (clean(&row.key)) }; } }
            td class="key" { a href=(asked.base.instance(&row.machine, &row.key)) data-row { (clean(&row.key)) } }
            td { @if let Some(state) = &row.state { code { (state) } } @else { "–" } }
            td { (status(row.status, row.paused, is_retrying(seen))) }
            td class="text" { (about(seen, now)) }
            td class="number" { (past(row.updated_at, now)) }
            td class="number" { (past(row.created_at, now)) }
        }
    }
}

/// True if the open attempt is not the first one of its call.
pub(super) fn is_retrying(seen: &InstanceView) -> bool {
    seen.call.as_ref().is_some_and(|call| call.attempt > 1)
}

/// The current activity of the instance, in a few words.
fn about(seen: &InstanceView, now: Timestamp) -> Markup {
    html! {
        @if let Some(error) = seen.row.error.as_deref().filter(|_| seen.row.status == Status::Error) { span class="error" { (first_line(error, 120)) } }
        @else if let Some(call) = &seen.call {
            "attempt " (call.attempt_of()) " of " code { (call.verb) }
            @if call.worker.is_none() { ", due " (time(call.next_at, now)) } @else { " runs" }
            @if let Some(error) = &call.last_error { " after " span class="error" { (first_line(error, 80)) } }
        }
    }
}

fn form(asked: &Asked, admin: &Admin, facets: &Facets) -> Markup {
    let known = admin.machine(&facets.machine).ok();
    let states = known.map(|known| known.states.clone()).unwrap_or_default();
    let search = known.map(|known| known.machine.search.clone()).unwrap_or_default();
    let statuses = ["running", "retrying", "error", "paused", "completed", "cancelled"];
    html! {
        form class="fields" method="get" action=(asked.base.to("/instances")) {
            label { "machine" select name="machine" {
                @for known in admin.machines() { option selected[known.machine.name == facets.machine] { (known.machine.name) } }
            } }
            label { "status" select name="status" {
                option value="" { "any" }
                @for word in statuses { option selected[word == facets.status] { (word) } }
            } }
            label { "state" select name="state" {
                option value="" { "any" }
                @for state in &states { option selected[*state == facets.state] { (state) } }
            } }
            @for name in &search {
                @let parameter = format!("{FIELD}{name}");
                label { (name) input name=(parameter) value=(clean(facets.others.get(&parameter).map_or("", String::as_str))); }
            }
            label { "key begins with" input name="prefix" value=(clean(&facets.prefix)); }
            label { "unchanged for" select name="unchanged" {
                option value="" { "any time" }
                @for (value, words) in UNCHANGED { option value=(value) selected[value == facets.unchanged] { (words) } }
                // A duration that a link names stays chosen.
                @if !facets.unchanged.is_empty() && UNCHANGED.iter().all(|(value, _)| *value != facets.unchanged) { option selected { (clean(&facets.unchanged)) } }
            } }
            label { "error contains" input name="error" value=(clean(&facets.error)); }
            button { "Filter" }
        }
    }
}

/// The acts on the selected instances, and on all that match.
fn acts(asked: &Asked, facets: &Facets) -> Markup {
    let acts = html! { @for act in ["retry", "pause", "resume", "skip", "cancel"] { button name="action" value=(act) { (act) "…" } } };
    html! {
        form id=(SELECTED) class="fields row" method="post" action=(asked.base.to("/bulk")) {
            (token(asked))
            input type="hidden" name="machine" value=(facets.machine);
            input type="hidden" name="only" value=(SELECTED);
            span { "The selected:" }
            (acts)
        }
        form class="fields row" method="post" action=(asked.base.to("/bulk")) {
            (token(asked))
            @for (name, value) in facets.pairs().into_iter().filter(|(name, _)| *name != "after") { input type="hidden" name=(name) value=(clean(value)); }
            span { "All that match:" }
            (acts)
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Search {
    q: String,
}

/// Finds an instance by its key, or else instances by a text of their errors.
pub(crate) async fn search(asked: Asked, Query(Search { q }): Query<Search>) -> Response {
    let wanted = q.trim();
    if wanted.is_empty() {
        return Redirect::to(&asked.base.overview()).into_response();
    }
    let admin = match asked.admin().await {
        Ok(admin) => admin,
        Err(error) => return failed(&asked, &error),
    };
    let mut found = Vec::new();
    for known in admin.machines() {
        let machine = &known.machine.name;
        match admin.details(machine, wanted).await {
            Ok(_) => found.push(asked.base.instance(machine, wanted)),
            Err(error) if error.is_not_found() || error.kind() == ErrorKind::Input => {}
            Err(error) => return failed(&asked, &error),
        }
    }
    let home = admin.partition().and_then(|here| here.elsewhere(wanted));
    match (&found[..], admin.machines()) {
        ([], _) if let (Some(here), Some(home)) = (asked.shared.partition(), home) => {
            elsewhere(&asked, &admin, wanted, here.number(), home)
        }
        ([only], _) => Redirect::to(only).into_response(),
        ([], [known]) => Redirect::to(&asked.base.instances(&[("machine", &known.machine.name), ("error", wanted)])).into_response(),
        ([], _) => said(
            &asked,
            StatusCode::NOT_FOUND,
            &format!("no instance has the key `{wanted}`; to search errors, choose a machine under Instances"),
        ),
        (links, _) => {
            let page = Page::new("Found", "", admin.now())
                .section("rows", html! { ul class="choice" { @for link in links { li { a href=(link) data-row { (link) } } } } });
            document(&asked, &page)
        }
    }
}

/// The page of a search that found no instance with this key in this partition, because such an instance belongs to another one.
fn elsewhere(asked: &Asked, admin: &Admin, wanted: &str, here: u32, home: u32) -> Response {
    let there = asked.base.above_partition(here).partition(home).to(&format!("/search{}", query(&[("q", wanted)])));
    let content = html! {
        p { "This partition has no instance with the key " code { (clean(wanted)) } ". An instance with this key belongs to partition " (home) "." }
        ul class="choice" {
            li { a href=(there) data-row { "search partition " (home) } }
            @for known in admin.machines() {
                @let machine = &known.machine.name;
                li { a href=(asked.base.instances(&[("machine", machine), ("error", wanted)])) data-row { "errors of " (machine) " in this partition that contain it" } }
            }
        }
    };
    document(asked, &Page { status: StatusCode::NOT_FOUND, ..Page::new("Not in this partition", "", admin.now()).section("said", content) })
}
