//! The errors of all partitions: groups that are merged, full inboxes, and rejected events. A partition that cannot be read is named.

use axum::response::Response;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::groups::{ErrorGroup, ErrorGroups};
use fsm_runtime::error::Error;
use fsm_store::outbox::FullInbox;
use fsm_store::overview::RejectedEvent;
use maud::{Markup, html};

use super::each_partition::{OfPartition, now_of, read_each};
use super::errors::{FULL, Found, REJECTED, full_inboxes, listed, problem, rejected_events};
use crate::format::{clean, grouped, past, time};
use crate::layout::{Page, document, empty};
use crate::shared::Asked;

/// The maximum number of instances of each partition that are grouped.
const MOST: usize = 500;
/// The maximum number of scheduled attempts of a machine and a partition that are searched for retries.
const LOOK_AT: u32 = 2_000;

const NO_ERROR: &str = "No instance is in error, and none is being retried.";
/// The texts if a partition is missing: nothing is said about that one.
const NO_ERROR_HERE: &str = "In the partitions that can be read, no instance is in error, and none is being retried.";
const NO_EVENT: &str = "In the partitions that can be read, every accepted event was taken.";

/// The errors of one partition.
struct Errors {
    now: Timestamp,
    groups: ErrorGroups,
    full: Vec<(String, FullInbox)>,
    rejected: Vec<(String, RejectedEvent)>,
}

pub(crate) async fn show(asked: Asked) -> Response {
    let _permit = asked.permit().await;
    document(&asked, &page(&asked).await)
}

/// Renders the page. It takes at most eight seconds, however many partitions do not answer.
pub(crate) async fn page(asked: &Asked) -> Page {
    let each = read_each(asked, Errors::read).await;
    let read = || each.iter().filter_map(|one| Some((one.number(), one.read.as_ref().ok()?)));
    let now = now_of(read().map(|(_, errors)| errors.now));
    let found = |number: u32, machine: &str| (asked.base.partition(number), Some(number), machine.to_owned());
    let (mut full, mut rejected) = (Vec::new(), Vec::new());
    for (number, errors) in read() {
        for (machine, inbox) in &errors.full {
            let (base, partition, machine) = found(number, machine);
            full.push(Found { base, partition, machine, row: inbox.clone() });
        }
        for (machine, event) in &errors.rejected {
            let (base, partition, machine) = found(number, machine);
            rejected.push(Found { base, partition, machine, row: event.clone() });
        }
    }
    Page::new("Errors", "/errors", now)
        .section("summary", unread(asked, &each))
        .section("groups", groups(asked, &each, now))
        .section("full", full_inboxes(&full, now))
        .section("rejected", if rejected.is_empty() && !is_whole(&each) { empty(NO_EVENT) } else { rejected_events(rejected, now) })
}

/// Returns true if all partitions were read.
fn is_whole(each: &[OfPartition<Errors>]) -> bool {
    each.iter().all(|one| one.read.is_ok())
}

impl Errors {
    async fn read(admin: Admin) -> Result<Errors, Error> {
        let groups = admin.error_groups(None, MOST, LOOK_AT).await?;
        let (mut full, mut rejected) = (Vec::new(), Vec::new());
        for known in admin.machines() {
            let machine = &known.machine.name;
            full.extend(admin.full_inboxes(machine, FULL).await?.into_iter().map(|inbox| (machine.clone(), inbox)));
            rejected.extend(admin.rejected(machine, None, REJECTED).await?.into_iter().map(|event| (machine.clone(), event)));
        }
        Ok(Errors { now: admin.now(), groups, full, rejected })
    }
}

/// The partitions that are missing on this page, each with the reason.
fn unread(asked: &Asked, each: &[OfPartition<Errors>]) -> Markup {
    let missing: Vec<_> = each.iter().filter_map(|one| Some((one.number(), one.read.as_ref().err()?))).collect();
    html! {
        @if missing.is_empty() { p class="quiet" { "The errors of all " (each.len()) " partitions. The page of a partition has the acts." } }
        @else {
            p class="notice bad" { (missing.len()) " of " (each.len()) " partitions cannot be read. Their errors are not on this page." }
            ul { @for (number, why) in missing { li { a href=(asked.base.partition(number).to("/errors")) { "partition " (number) } ": " (clean(why)) } } }
        }
    }
}

/// The groups of all partitions, the largest first, each with a link to its instances in each partition.
fn groups(asked: &Asked, each: &[OfPartition<Errors>], now: Timestamp) -> Markup {
    let read: Vec<(u32, &ErrorGroups)> = each.iter().filter_map(|one| Some((one.number(), &one.read.as_ref().ok()?.groups))).collect();
    let all = ErrorGroups::merged(read.iter().map(|(_, groups)| (*groups).clone()));
    html! {
        @if all.groups.is_empty() { (empty(if is_whole(each) { NO_ERROR } else { NO_ERROR_HERE })) }
        @else { div class="wide" { table {
            thead { tr {
                th class="number" { "count" } th { "status" } th { "error" } th { "machine" } th { "verb" } th { "example" }
                th class="number" { "last" } th class="number" { "next" } th { "in partition" }
            } }
            tbody { @for group in &all.groups {
                @let parts = parts(group, &read);
                tr {
                    td class="number" { (grouped(group.count as u64)) }
                    (problem(group))
                    td class="key" { (example(asked, group, &parts)) }
                    td class="number" { (past(group.last_at, now)) }
                    td class="number" { @if let Some(next) = group.next_at { (time(next, now)) } @else { "–" } }
                    td class="text" { @for (place, (number, part)) in parts.iter().enumerate() {
                        @if place > 0 { ", " }
                        a href=(listed(&asked.base.partition(*number), part)) data-row[place == 0] { (number) } " (" (grouped(part.count as u64)) ")"
                    } }
                }
            } }
        } } }
        @for machine in &all.more_in { p class="quiet" {
            (machine) " has more: at most " (grouped(MOST as u64)) " instances of each kind and partition are grouped."
        } }
    }
}

/// The parts of a group, each with the number of its partition.
fn parts<'e>(group: &ErrorGroup, read: &[(u32, &'e ErrorGroups)]) -> Vec<(u32, &'e ErrorGroup)> {
    let part = |(number, groups): &(u32, &'e ErrorGroups)| Some((*number, groups.groups.iter().find(|part| part.is_as(group))?));
    read.iter().filter_map(part).collect()
}

/// The instance of a group that failed first.
fn example(asked: &Asked, group: &ErrorGroup, parts: &[(u32, &ErrorGroup)]) -> Markup {
    let place = parts.iter().find(|(_, part)| part.first == group.first).map(|(number, _)| asked.base.partition(*number));
    html! { @if let Some(base) = place { a href=(base.instance(&group.machine, &group.first.key)) { (clean(&group.first.key)) } } }
}
