//! Instances in error and instances that are being retried, grouped by their errors, full inboxes, and rejected events.

use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::groups::ErrorGroup;
use fsm_runtime::error::Error;
use fsm_store::outbox::FullInbox;
use fsm_store::overview::RejectedEvent;
use maud::{Markup, html};

use crate::access::Action;
use crate::format::{clean, first_line, grouped, is_hidden, past, time};
use crate::layout::{Page, empty, only, token};
use crate::shared::Asked;

/// The maximum number of instances that are grouped.
const MOST: usize = 2_000;
/// The maximum number of scheduled attempts of a machine that are searched for retries.
const LOOK_AT: u32 = 20_000;
/// The maximum number of rejected events that are shown of each machine, the newest first.
const REJECTED: u32 = 20;
/// The maximum number of full inboxes that are shown of each machine.
const FULL: u32 = 20;

pub(crate) async fn page(asked: &Asked, admin: &Admin) -> Result<Page, Error> {
    let now = admin.now();
    let found = admin.error_groups(None, MOST, LOOK_AT).await?;
    let (mut rejected, mut full) = (Vec::new(), Vec::new());
    for known in admin.machines() {
        let machine = &known.machine.name;
        full.extend(admin.full_inboxes(machine, FULL).await?.into_iter().map(|inbox| (machine.clone(), inbox)));
        rejected.extend(admin.rejected(machine, None, REJECTED).await?.into_iter().map(|event| (machine.clone(), event)));
    }
    rejected.sort_by_key(|(_, event)| std::cmp::Reverse(event.at));
    let groups = html! {
        @if found.groups.is_empty() { (empty("No instance is in error, and none is being retried.")) }
        @else { (groups_table(asked, &found.groups, now)) }
        @for machine in &found.more_in { p class="quiet" { (machine) " has more: at most " (grouped(MOST as u64)) " instances of each kind are grouped." } }
    };
    let full = html! {
        h2 { "Full inboxes" }
        @if full.is_empty() { (empty("Every event that a verb sent found room.")) }
        @else { (full_inboxes_table(asked, &full, now)) }
    };
    let rejected = html! {
        h2 { "Rejected events" }
        @if rejected.is_empty() { (empty("Every accepted event was taken.")) }
        @else { (rejected_table(asked, &rejected, now)) }
    };
    Ok(Page::new("Errors", "/errors", now).section("groups", groups).section("full", full).section("rejected", rejected))
}

/// A table of the instances whose inbox is full, each with the name of its machine.
fn full_inboxes_table(asked: &Asked, full: &[(String, FullInbox)], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            thead { tr { th { "machine" } th { "key" } th class="number" { "inbox" } th class="number" { "outbox" } th class="number" { "since" } th class="number" { "next" } } }
            tbody {
                @for (machine, inbox) in full {
                    tr {
                        td { (machine) }
                        td class="key" { a href=(asked.base.instance(machine, &inbox.key)) data-row { (clean(&inbox.key)) } }
                        td class="number" { (grouped(inbox.inbox_len)) }
                        td class="number" { (grouped(inbox.events)) }
                        td class="number" { (past(inbox.since, now)) }
                        td class="number" { (time(inbox.next_at, now)) }
                    }
                }
            }
        } }
    }
}

/// A table of rejected events, each with the name of its machine.
fn rejected_table(asked: &Asked, rejected: &[(String, RejectedEvent)], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            thead { tr { th { "machine" } th { "key" } th { "reason" } th class="number" { "when" } } }
            tbody {
                @for (machine, event) in rejected {
                    tr {
                        td { (machine) }
                        td class="key" { a href=(asked.base.instance(machine, &event.key)) data-row { (clean(&event.key)) } }
                        td { (first_line(&event.reason, 160)) }
                        td class="number" { (past(event.at, now)) }
                    }
                }
            }
        } }
    }
}

/// A table of groups, each with a link to its instances, and with "retry these" for those that are in error.
pub(super) fn groups_table(asked: &Asked, groups: &[ErrorGroup], now: Timestamp) -> Markup {
    html! {
        div class="wide" { table {
            thead { tr { th class="number" { "count" } th { "status" } th { "error" } th { "machine" } th { "verb" } th { "example" } th class="number" { "last" } th class="number" { "next" } th { "act" } } }
            tbody {
                @for group in groups {
                    @let filter = searched(group);
                    @let status = if group.is_retried { "retrying" } else { "error" };
                    tr {
                        td class="number" { a href=(asked.base.instances(&[("machine", &group.machine), ("status", status), ("error", &filter)])) data-row { (grouped(group.count as u64)) } }
                        td { (crate::format::status(if group.is_retried { fsm_core::instance::Status::Running } else { fsm_core::instance::Status::Error }, false, group.is_retried)) }
                        td class="text" title=(clean(&group.first.error)) { (first_line(&group.fingerprint, 120)) }
                        td { (group.machine) }
                        td { code { (group.verb.as_deref().unwrap_or("–")) } }
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
                                        input type="hidden" name="error" value=(filter);
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
