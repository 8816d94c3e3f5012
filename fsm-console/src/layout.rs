//! The frame of every page. A page is a list of sections, and a live update replaces the sections that changed.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use fsm_core::time::Timestamp;
use fsm_runtime::error::{Error, ErrorKind};
use maud::{DOCTYPE, Markup, html};

use crate::access::Action;
use crate::assets::{SCRIPT_NAME, STYLE_NAME};
use crate::format::clean;
use crate::shared::Asked;

/// A part of a page with its own id.
pub(crate) struct Section {
    pub(crate) id: &'static str,
    pub(crate) content: Markup,
}

/// A page.
pub(crate) struct Page {
    pub(crate) title: String,
    /// The path of the page below the console, with its query. Live updates use it.
    pub(crate) path: String,
    pub(crate) sections: Vec<Section>,
    pub(crate) now: Timestamp,
    pub(crate) status: StatusCode,
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, path: impl Into<String>, now: Timestamp) -> Page {
        Page { title: title.into(), path: path.into(), sections: Vec::new(), now, status: StatusCode::OK }
    }

    pub(crate) fn section(mut self, id: &'static str, content: Markup) -> Page {
        self.sections.push(Section { id, content });
        self
    }
}

/// A title with more characters than this, such as a long key, is shown smaller.
const LONG_TITLE: usize = 60;

/// The pages of the navigation: the path below the console, the name, and the keyboard shortcut.
const NAVIGATION: [(&str, &str, &str); 7] = [
    ("", "Overview", "o"),
    ("/instances", "Instances", "i"),
    ("/errors", "Errors", "e"),
    ("/due", "Due", "d"),
    ("/workers", "Workers", "w"),
    ("/simulator", "Simulator", "m"),
    ("/audit", "Audit", "a"),
];

/// The navigation of the pages about all partitions.
const ALL_PARTITIONS: [(&str, &str, &str); 2] = [("", "Partitions", "p"), ("/errors", "Errors", "e")];

/// The complete HTML document.
pub(crate) fn document(asked: &Asked, page: &Page) -> Response {
    let base = &asked.base;
    let here = page.path.split('?').next().unwrap_or_default();
    let partition = asked.shared.partition();
    let is_above_partitions = !asked.shared.partitions().is_empty();
    let pages: &[_] = if is_above_partitions { &ALL_PARTITIONS } else { &NAVIGATION };
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (clean(&page.title)) @if let Some(partition) = partition { " · partition " (partition.number()) } " · fsm" }
                link rel="stylesheet" href=(base.to(&format!("/assets/{}", *STYLE_NAME)));
                link rel="icon" href="data:,";
                script type="module" src=(base.to(&format!("/assets/{}", *SCRIPT_NAME))) {}
            }
            body data-base=(base.0) data-live=(clean(&page.path)) data-now=(page.now.as_micros()) {
                a class="skip" href="#main" { "Skip to the content" }
                header class="top" {
                    nav aria-label="Pages" {
                        @if let Some(partition) = partition {
                            a href=(base.above_partition(partition.number()).overview()) data-key="gp" { "Partitions" }
                            span class="badge" { "partition " (partition.number()) " of " (partition.of()) }
                        }
                        @for &(path, name, key) in pages {
                            @let is_here = path == here;
                            a href=(if path.is_empty() { base.overview() } else { base.to(path) }) aria-current=[is_here.then_some("page")] data-key={ "g" (key) } { (name) }
                        }
                    }
                    @if !is_above_partitions {
                        form class="search" action=(base.to("/search")) method="get" role="search" {
                            input type="search" name="q" placeholder="key, id or error text" aria-label="Find an instance by key, id or error text" data-key="/";
                        }
                    }
                    span class="live" id="live" role="status" { }
                    @if asked.shared.is_read_only { span class="badge" { "read-only" } }
                    @if !asked.actor.name.is_empty() { span class="who" { (clean(&asked.actor.name)) } }
                }
                main id="main" {
                    h1 class=[(page.title.chars().count() > LONG_TITLE).then_some("long")] { (clean(&page.title)) }
                    @for section in &page.sections {
                        section id=(section.id) { (section.content) }
                    }
                }
                dialog id="keys" aria-labelledby="keys-title" {
                    h2 id="keys-title" { "Keys" }
                    dl {
                        dt { kbd { "/" } } dd { "search" }
                        dt { kbd { "j" } " " kbd { "k" } } dd { "next and previous row" }
                        dt { kbd { "x" } } dd { "select the row" }
                        dt { kbd { "Enter" } } dd { "open the row" }
                        dt { kbd { "g" } " then a letter" } dd { (keys_of(pages)) @if partition.is_some() { ", p partitions" } }
                        dt { kbd { "r" } } dd { "retry the instance of this page" }
                        dt { kbd { "s" } } dd { "choose an event to send to it" }
                        dt { kbd { "[" } " " kbd { "]" } } dd { "previous and next page" }
                        dt { kbd { "?" } } dd { "this list" }
                    }
                    form method="dialog" { button { "Close" } }
                }
            }
        }
    };
    (page.status, Html(document.into_string())).into_response()
}

/// The letters that open the pages of a navigation.
fn keys_of(pages: &[(&str, &str, &str)]) -> String {
    pages.iter().map(|(_, name, key)| format!("{key} {}", name.to_lowercase())).collect::<Vec<_>>().join(", ")
}

/// A page with the error.
pub(crate) fn failed(asked: &Asked, error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Input => StatusCode::BAD_REQUEST,
        ErrorKind::Database => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    said(asked, status, &error.to_string())
}

/// A page with one sentence.
pub(crate) fn said(asked: &Asked, status: StatusCode, text: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let page = Page::new(title, "", Timestamp::from(std::time::SystemTime::now()))
        .section("said", html! { p class="notice bad" { (clean(text)) } });
    document(asked, &Page { status, ..page })
}

/// The hidden token of each form.
pub(crate) fn token(asked: &Asked) -> Markup {
    html! { input type="hidden" name="token" value=(asked.shared.token); }
}

/// Renders the content only if the actor is allowed to do the action.
pub(crate) fn only(asked: &Asked, action: Action, content: impl FnOnce() -> Markup) -> Markup {
    if asked.may(action) { content() } else { Markup::default() }
}

/// The note of a page that has nothing to show.
pub(crate) fn empty(text: &str) -> Markup {
    html! { p class="empty" { (text) } }
}
