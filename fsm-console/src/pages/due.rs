//! The due page: attempts and timers, the earliest first, the reasons why something does not run yet, the limits, and the schedules.

use fsm_core::limit::shown;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::limits::MOST_COUNTED;
use fsm_runtime::error::Error;
use fsm_store::limits::ShownLimit;
use fsm_store::overview::ToCome;
use maud::{Markup, html};

use super::overview::liveness;
use crate::format::{clean, time};
use crate::layout::{Page, empty};
use crate::schedules;
use crate::shared::Asked;

/// The maximum number of rows of the page.
const MOST: u32 = 100;

pub(crate) async fn page(asked: &Asked, admin: &Admin) -> Result<Page, Error> {
    let now = admin.now();
    let workers = admin.workers().await?;
    let has_worker = workers.iter().any(|worker| worker.lease_until > now);
    let mut coming = Vec::new();
    for known in admin.machines() {
        coming.extend(admin.to_come(&known.machine.name, MOST).await?);
    }
    coming.sort_by_key(|one| one.at);
    coming.truncate(MOST as usize);
    let state = |what: &ToCome, is_due: bool| -> &'static str {
        match (what, is_due, has_worker) {
            (_, true, false) => "due; waits for a worker",
            (ToCome::Lapsed { .. }, _, true) => "its worker is gone; another one takes it over",
            (_, true, true) => "due; starts when a slot is free",
            (_, false, _) => "waits for its time",
        }
    };
    let table = html! {
        @if coming.is_empty() { (empty("Nothing is scheduled: no attempt, no retry, no timer, no delayed event.")) }
        @else {
            div class="wide" { table {
                thead { tr { th class="number" { "when" } th { "machine" } th { "key" } th { "what" } th { "why it waits" } } }
                tbody {
                    @for one in &coming {
                        tr {
                            td class="number" { (time(one.at, now)) }
                            td { a href=(asked.base.machine(&one.machine)) { (one.machine) } }
                            td class="key" { a href=(asked.base.instance(&one.machine, &one.key)) data-row { (clean(&one.key)) } }
                            td { (what(&one.what)) }
                            td { (state(&one.what, one.at <= now)) }
                        }
                    }
                }
            } }
            @if coming.len() == MOST as usize { p class="quiet" { "The first " (MOST) " are shown." } }
        }
    };
    let schedules = schedules::table(asked, &admin.schedules().await?, now);
    Ok(Page::new("Due", "/due", now)
        .section("workers", liveness(&workers, now))
        .section("coming", table)
        .section("limits", limits(&admin.limits().await?, admin.partition().is_some()))
        .section("schedules", schedules))
}

/// The table of limits; nothing if no program has declared one. `fsm limits set` changes them.
fn limits(limits: &[ShownLimit], is_partition: bool) -> Markup {
    let counted = |count: u32| if count >= MOST_COUNTED { format!("{count} or more") } else { count.to_string() };
    html! {
        @if !limits.is_empty() {
            h2 { "Limits" }
            div class="wide" { table {
                thead { tr {
                    th { "limit" } th { "counts" } th class="number" { "at once" } th { "rate" } th class="number" { "running" }
                    th class="number" { "waiting" } th { "set by" }
                } }
                tbody {
                    @for limit in limits { tr {
                        td { (clean(&limit.name)) }
                        td { @match &limit.limit.by { Some(field) => { "each " code { (clean(field)) } }, None => "all calls" } }
                        td class="number" { @match limit.limit.concurrency { Some(most) => (most), None => "any" } }
                        td { @match limit.limit.rate { Some(rate) => (rate.to_string()), None => "any" } }
                        td class="number" { (counted(limit.running)) }
                        td class="number" { (counted(limit.waiting)) }
                        td { @match &limit.changed.0 { Some(actor) => (clean(actor)), None => "the code" } }
                    } }
                }
            } }
            @if is_partition { p class="quiet" { "The calls of this partition. A limit counts over all of them." } }
        }
    }
}

fn what(coming: &ToCome) -> Markup {
    let of = |most: &Option<u32>| most.map_or(String::new(), |most| format!(" of {most}"));
    html! {
        @match coming {
            ToCome::Attempt { verb, number, max_attempts, limit, .. } => {
                "attempt " (number) (of(max_attempts)) " of " code { (verb) }
                @if let Some(limit) = limit { ", waits for the limit " (shown(limit)) }
            }
            ToCome::Lapsed { verb, number, max_attempts, .. } => { "attempt " (number) (of(max_attempts)) " of " code { (verb) } ", lost" }
            ToCome::Event { state: Some(state), event } => { "timer of " code { (state) } ": " code { (event) } }
            ToCome::Event { state: None, event } => { "delayed event " code { (event) } }
        }
    }
}
