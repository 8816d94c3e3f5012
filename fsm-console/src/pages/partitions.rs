//! The page about all partitions of a database: whether each can be reached, its main figures, and a way to the partition of an instance.

use std::collections::BTreeSet;

use axum::extract::Query;
use axum::response::{IntoResponse, Redirect, Response};
use fsm_core::instance::Status;
use fsm_core::partition::partition_of;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use maud::{Markup, html};
use serde::Deserialize;

use super::each_partition::{OfPartition, now_of, read_each};
use super::overview::MOST;
use crate::format::{clean, grouped, time};
use crate::layout::{Page, document};
use crate::path::query;
use crate::shared::{Asked, Scope};

/// A count of instances or calls, which may have stopped at its limit.
#[derive(Default, Clone, Copy)]
struct Count {
    number: u64,
    is_more: bool,
}

/// The main figures of one partition, of all machines together.
struct Figures {
    now: Timestamp,
    running: Count,
    errors: Count,
    completed: Count,
    cancelled: Count,
    due: Count,
    /// The time from which the oldest due call has waited.
    due_since: Option<Timestamp>,
    machines: Vec<String>,
}

/// One partition, and its figures or the reason why there are none.
type Row = OfPartition<Figures>;

pub(crate) async fn show(asked: Asked) -> Response {
    let _permit = asked.permit().await;
    document(&asked, &page(&asked).await)
}

/// The key of an instance, and its machine if the form names one.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Wanted {
    machine: String,
    key: String,
}

/// Redirects to the instance in the partition of its key. Without a machine, the search of that partition finds it.
pub(crate) async fn find(asked: Asked, Query(Wanted { machine, key }): Query<Wanted>) -> Response {
    let key = key.trim();
    if key.is_empty() {
        return Redirect::to(&asked.base.overview()).into_response();
    }
    let of = u32::try_from(asked.shared.partitions().len()).unwrap_or(u32::MAX);
    let there = asked.base.partition(partition_of(key, of));
    let path = if machine.is_empty() { there.to(&format!("/search{}", query(&[("q", key)]))) } else { there.instance(&machine, key) };
    Redirect::to(&path).into_response()
}

/// Renders the page. It takes at most eight seconds, however many partitions do not answer.
pub(crate) async fn page(asked: &Asked) -> Page {
    let rows: Vec<Row> = read_each(asked, Figures::read).await;
    let read = || rows.iter().filter_map(|row| row.read.as_ref().ok());
    let machines: BTreeSet<&str> = read().flat_map(|figures| figures.machines.iter().map(String::as_str)).collect();
    Page::new("Partitions", "", now_of(read().map(|figures| figures.now)))
        .section("summary", summary(&rows))
        .section("find", form(asked, &machines))
        .section("partitions", table(asked, &rows))
}

impl Figures {
    async fn read(admin: Admin) -> Result<Figures, Error> {
        let now = admin.now();
        let machines: Vec<String> = admin.machines().iter().map(|known| known.machine.name.clone()).collect();
        let [mut running, mut errors, mut completed, mut cancelled, mut due] = [Count::default(); 5];
        let mut due_since: Option<Timestamp> = None;
        for machine in &machines {
            let (counts, more) = admin.newest_counts(machine, MOST).await?;
            for (status, _, number) in counts {
                let (count, limited_as) = match status {
                    Status::Running => (&mut running, status),
                    Status::Error => (&mut errors, status),
                    // Ended instances have one limit together.
                    Status::Completed => (&mut completed, Status::Completed),
                    Status::Cancelled => (&mut cancelled, Status::Completed),
                };
                count.add(number, more.contains(&limited_as));
            }
            let overdue = admin.overdue(machine, MOST).await?;
            due.add(overdue.attempts, overdue.attempts >= u64::from(MOST));
            due_since = due_since.into_iter().chain(overdue.since).min();
        }
        Ok(Figures { now, running, errors, completed, cancelled, due, due_since, machines })
    }
}

impl Count {
    fn add(&mut self, number: u64, is_more: bool) {
        self.number += number;
        self.is_more |= is_more;
    }

    fn shown(self) -> String {
        format!("{}{}", grouped(self.number), if self.is_more { "+" } else { "" })
    }
}

fn summary(rows: &[Row]) -> Markup {
    let unreachable = rows.iter().filter(|row| row.read.is_err()).count();
    html! {
        @if unreachable > 0 { p class="notice bad" { (unreachable) " of " (rows.len()) " partitions cannot be reached." @if unreachable < rows.len() { " The others are not affected." } } }
        @else { p class="quiet" { "All " (rows.len()) " partitions are reachable." } }
    }
}

fn form(asked: &Asked, machines: &BTreeSet<&str>) -> Markup {
    html! {
        h2 { "Find an instance" }
        form class="fields" method="get" action=(asked.base.to("/find")) role="search" {
            label { "machine" select name="machine" {
                option value="" { "any" }
                @for machine in machines { option value=(machine) { (machine) } }
            } }
            label { "key" input type="search" name="key" required size="40" data-key="/"; }
            button { "Find" }
        }
    }
}

fn table(asked: &Asked, rows: &[Row]) -> Markup {
    let heads = ["running", "error", "completed", "cancelled", "due", "oldest due"];
    html! {
        h2 { "All partitions" }
        div class="wide" { table {
            thead { tr { th { "partition" } th { "status" } @for head in heads { th class="number" { (head) } } th { "schema" } th { "database" } } }
            tbody { @for row in rows { (shown(asked, row, heads.len())) } }
        } }
    }
}

/// The row of one partition.
fn shown(asked: &Asked, row: &Row, columns: usize) -> Markup {
    let Scope::Partition(listed) = &row.shared.scope else { return Markup::default() };
    let number = listed.place.partition.number();
    let base = asked.base.partition(number);
    html! {
        tr {
            td { a href=(base.overview()) data-row { "partition " (number) } }
            @match &row.read {
                Ok(figures) => {
                    td { span class="status done" { span aria-hidden="true" { "✓" } " reachable" } }
                    td class="number" { (figures.running.shown()) }
                    td class="number" {
                        @if figures.errors.number == 0 { span class="quiet" { "0" } }
                        @else { a class="error" href=(base.to("/errors")) { (figures.errors.shown()) } }
                    }
                    td class="number" { (figures.completed.shown()) }
                    td class="number" { (figures.cancelled.shown()) }
                    td class="number" { a href=(base.to("/due")) { (figures.due.shown()) } }
                    td class="number" { @if let Some(since) = figures.due_since { (time(since, figures.now)) } @else { "–" } }
                }
                Err(why) => {
                    td { span class="status error" { span aria-hidden="true" { "✕" } " unreachable" } }
                    td class="text" colspan=(columns) { (clean(why)) }
                }
            }
            td { code { (clean(&listed.place.schema)) } }
            td { (clean(listed.database.as_deref().unwrap_or("that of the directory"))) }
        }
    }
}
