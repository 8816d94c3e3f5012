//! Instances in error and instances that are being retried, grouped by their errors, full inboxes, and rejected events.

use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::groups::ErrorGroup;
use fsm_runtime::error::Error;
use fsm_store::outbox::FullInbox;
use fsm_store::overview::RejectedEvent;
use maud::{Markup, html};

use crate::access::Action;
use crate::format::{clean, first_line, grouped, is_hidden, past, status, time};
use crate::layout::{Page, empty, only, token};
use crate::path::Base;
use crate::shared::Asked;

/// The maximum number of instances that are grouped.
const MOST: usize = 2_000;
/// The maximum number of scheduled attempts of a machine that are searched for retries.
const LOOK_AT: u32 = 20_000;
/// The maximum number of rejected events that are shown of each machine, the newest first.
pub(super) const REJECTED: u32 = 20;
/// The maximum number of full inboxes that are shown of each machine.
pub(super) const FULL: u32 = 20;

/// A row of a table, with the console of its partition.
pub(super) struct Found<T> {
    pub(super) base: Base,
    /// The number of the partition, on a page about all of them.
    pub(super) partition: Option<u32>,
    pub(super) machine: String,
    pub(super) row: T,
}

pub(crate) async fn page(asked: &Asked, admin: &Admin) -> Result<Page, Error> {
    let now = admin.now();
    let found = admin.error_groups(None, MOST, LOOK_AT).await?;
    let (mut rejected, mut full) = (Vec::new(), Vec::new());
    for known in admin.machines() {
        let machine = &known.machine.name;
        full.extend(admin.full_inboxes(machine, FULL).await?.into_iter().map(|row| Found::here(asked, machine, row)));
        rejected.extend(admin.rejected(machine, None, REJECTED).await?.into_iter().map(|row| Found::here(asked, machine, row)));
    }
    let groups = html! {
        @if found.groups.is_empty() { (empty("No instance is in error, and none is being retried.")) }
        @else { (groups_table(asked, &found.groups, now)) }
        @for machine in &found.more_in { p class="quiet" { (machine) " has more: at most " (grouped(MOST as u64)) " instances of each kind are grouped." } }
    };
    Ok(Page::new("Errors", "/errors", now)
        .section("groups", groups)
        .section("full", full_inboxes(&full, now))
        .section("rejected", rejected_events(rejected, now)))
}

impl<T> Found<T> {
    fn here(asked: &Asked, machine: &str, row: T) -> Found<T> {
        Found { base: asked.base.clone(), partition: None, machine: machine.to_owned(), row }
    }
}

/// The instances whose inbox is full.
pub(super) fn full_inboxes(full: &[Found<FullInbox>], now: Timestamp) -> Markup {
    let has_partitions = full.iter().any(|found| found.partition.is_some());
    html! {
        h2 { "Full inboxes" }
        @if full.is_empty() { (empty("Every event that a verb sent found room.")) }
        @else { div class="wide" { table {
            thead { tr {
                th { "machine" } th { "key" } @if has_partitions { th { "partition" } } th class="number" { "inbox" } th class="number" { "outbox" }
                th class="number" { "since" } th class="number" { "next" }
            } }
            tbody { @for Found { base, partition, machine, row: inbox } in full { tr {
                td { (machine) }
                td class="key" { a href=(base.instance(machine, &inbox.key)) data-row { (clean(&inbox.key)) } }
                @if let Some(partition) = partition { td { (partition) } }
                td class="number" { (grouped(inbox.inbox_len)) }
                td class="number" { (grouped(inbox.events)) }
                td class="number" { (past(inbox.since, now)) }
                td class="number" { (time(inbox.next_at, now)) }
            } } }
        } } }
    }
}

/// The rejected events, newest first.
pub(super) fn rejected_events(mut rejected: Vec<Found<RejectedEvent>>, now: Timestamp) -> Markup {
    rejected.sort_by_key(|found| std::cmp::Reverse(found.row.at));
    let has_partitions = rejected.iter().any(|found| found.partition.is_some());
    html! {
        h2 { "Rejected events" }
        @if rejected.is_empty() { (empty("Every accepted event was taken.")) }
        @else { div class="wide" { table {
            thead { tr { th { "machine" } th { "key" } @if has_partitions { th { "partition" } } th { "reason" } th class="number" { "when" } } }
            tbody { @for Found { base, partition, machine, row: event } in &rejected { tr {
                td { (machine) }
                td class="key" { a href=(base.instance(machine, &event.key)) data-row { (clean(&event.key)) } }
                @if let Some(partition) = partition { td { (partition) } }
                td { (first_line(&event.reason, 160)) }
                td class="number" { (past(event.at, now)) }
            } } }
        } } }
    }
}

/// The cells of a group that say what the problem is: status, error, machine and verb.
pub(super) fn problem(group: &ErrorGroup) -> Markup {
    let in_status = if group.is_retried { Status::Running } else { Status::Error };
    html! {
        td { (status(in_status, false, group.is_retried)) }
        td class="text" title=(clean(&group.first.error)) { (first_line(&group.fingerprint, 120)) }
        td { (group.machine) }
        td { code { (group.verb.as_deref().unwrap_or("–")) } }
    }
}

/// The list of the group's instances in one console.
pub(super) fn listed(base: &Base, group: &ErrorGroup) -> String {
    let status = if group.is_retried { "retrying" } else { "error" };
    base.instances(&[("machine", &group.machine), ("status", status), ("error", &searched(group))])
}

/// A table of groups, each with a link to its instances, and with "retry these" for those that are in error.
pub(super) fn groups_table(asked: &Asked, groups: &[ErrorGroup], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            thead { tr { th class="number" { "count" } th { "status" } th { "error" } th { "machine" } th { "verb" } th { "example" } th class="number" { "last" } th class="number" { "next" } th { "act" } } }
            tbody {
                @for group in groups {
                    tr {
                        td class="number" { a href=(listed(&asked.base, group)) data-row { (grouped(group.count as u64)) } }
                        (problem(group))
                        td class="key" { a href=(asked.base.instance(&group.machine, &group.first.key)) { (clean(&group.first.key)) } }
                        td class="number" { (past(group.last_at, now)) }
                        td class="number" { @if let Some(next) = group.next_at { (time(next, now)) } @else { "–" } }
                        td {
                            @if !group.is_retried {
                                (only(asked, Action::ActOnMany, || html! {
                                    form method="post" action=(asked.base.to("/bulk")) {
                                        (token(asked))
                                        input type="hidden" name="machine" value=(group.machine);
                                        input type="hidden" name="status" value="error";
                                        input type="hidden" name="error" value=(searched(group));
                                        button name="action" value="retry" { "retry these" }
                                    }
                                }))
                            }
                        }
                    }
                }
            }
        } }
    }
}

/// The longest part of a fingerprint between the places that differ, without hidden characters. The error texts of all instances of the
/// group contain it.
fn searched(group: &ErrorGroup) -> String {
    group.fingerprint.split(|c| c == '#' || is_hidden(c)).map(str::trim).max_by_key(|part| part.len()).unwrap_or_default().to_owned()
}
