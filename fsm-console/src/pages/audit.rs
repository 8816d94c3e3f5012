//! The acts of operators, the newest first.

use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use maud::html;
use serde::Deserialize;

use crate::format::{clean, past};
use crate::layout::{Page, empty};
use crate::shared::Asked;

/// The maximum number of rows of a page.
const MOST: u32 = 100;

#[derive(Deserialize, Default)]
pub(crate) struct Parameters {
    before: Option<i64>,
}

impl Parameters {
    fn path(&self) -> String {
        self.before.map_or("/audit".to_owned(), |before| format!("/audit?before={before}"))
    }
}

pub(crate) async fn page(asked: &Asked, admin: &Admin, parameters: &Parameters) -> Result<Page, Error> {
    let now = admin.now();
    let acts = admin.acts(parameters.before, MOST).await?;
    let next = acts.last().filter(|_| acts.len() == MOST as usize).map(|last| last.id);
    let table = html! {
        @if acts.is_empty() { (empty("No operator has acted: nothing was retried, paused, skipped or cancelled by hand.")) }
        @else {
            div class="wide" { table {
                thead { tr { th class="number" { "when" } th { "act" } th { "machine" } th { "key" } th { "by" } th { "reason" } } }
                tbody {
                    @for act in &acts {
                        tr {
                            td class="number" { (past(act.at, now)) }
                            td { (act.kind) }
                            td { (act.machine) }
                            td class="key" { a href=(asked.base.instance(&act.machine, &act.key)) data-row { (clean(&act.key)) } }
                            td { (clean(act.actor.as_deref().unwrap_or("–"))) }
                            td class="text" { (clean(act.reason.as_deref().unwrap_or("–"))) }
                        }
                    }
                }
            } }
            @if let Some(before) = next { p { a href=(asked.base.to(&format!("/audit?before={before}"))) rel="next" data-key="]" { "older" } } }
        }
    };
    Ok(Page::new("Audit", parameters.path(), now).section("acts", table))
}
