//! The overview: whether anything is wrong, and the most important problems first.

use std::time::Duration;

use fsm_core::call::AttemptState;
use fsm_core::instance::Status;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use fsm_store::overview::Times;
use fsm_store::workers::Worker;
use maud::{Markup, html};

use super::errors::groups_table;
use crate::format::{age, counted, grouped, span, time};
use crate::layout::{Page, empty};
use crate::shared::Asked;

/// The limit of all counts of instances.
pub(super) const MOST: u32 = 10_000;
/// The number of newest attempts that the charts show.
const SAMPLE: u32 = 2_000;
/// The number of bars of a chart.
const BARS: usize = 40;
/// The maximum number of error groups on this page. The page of errors shows all.
const GROUPS: usize = 8;

pub(crate) async fn page(asked: &Asked, admin: &Admin) -> Result<Page, Error> {
    let now = admin.now();
    let errors = admin.error_groups(None, 500, 2_000).await?;
    let workers = admin.workers().await?;
    let newest = admin.newest(SAMPLE).await?;
    let rows = machines(asked, admin, now).await?;
    Ok(Page::new("Overview", "", now)
        .section("workers", liveness(&workers, now))
        .section(
            "problems",
            html! {
                h2 { "Problems" }
                @if errors.groups.is_empty() { (empty("No instance is in error, and none is being retried.")) }
                @else {
                    (groups_table(asked, &errors.groups[..errors.groups.len().min(GROUPS)], now))
                    @if errors.groups.len() > GROUPS { p { a href=(asked.base.to("/errors")) { "all " (errors.groups.len()) " groups" } } }
                }
            },
        )
        .section("charts", charts(&newest, now))
        .section("machines", html! { h2 { "Machines" } (rows) }))
}

/// One sentence about the workers. Only problems are highlighted.
pub(super) fn liveness(workers: &[Worker], now: Timestamp) -> Markup {
    let alive = workers.iter().filter(|worker| worker.lease_until > now).count();
    let silent = workers.len() - alive;
    let running: u64 = workers.iter().map(|worker| worker.executing).sum();
    html! {
        @if alive == 0 { p class="notice bad" { "No worker is alive: nothing runs, and what is due waits." } }
        @else { p class="quiet" { (alive) @if alive == 1 { " worker" } @else { " workers" } " alive, " (grouped(running)) " attempts running" } }
        @if silent > 0 { p class="notice warn" { (silent) @if silent == 1 { " worker is silent: its lease has ended." } @else { " workers are silent: their leases have ended." } } }
    }
}

async fn machines(asked: &Asked, admin: &Admin, now: Timestamp) -> Result<Markup, Error> {
    let mut rows = Vec::new();
    for known in admin.machines() {
        let name = &known.machine.name;
        let (counts, more) = admin.newest_counts(name, MOST).await?;
        let of = |wanted: Status| {
            let count: u64 = counts.iter().filter(|(status, ..)| *status == wanted).map(|(_, _, count)| count).sum();
            if more.contains(&wanted) { format!("{}+", grouped(count)) } else { grouped(count) }
        };
        let overdue = admin.overdue(name, MOST).await?;
        let lag = overdue.since.map_or(Duration::ZERO, |since| now.since(since));
        rows.push(html! {
            tr {
                td { a href=(asked.base.machine(name)) data-row { (name) } }
                td class="number" { (of(Status::Running)) }
                td class={ "number" @if counts.iter().any(|(status, ..)| *status == Status::Error) { " error" } } {
                    @if of(Status::Error) == "0" { span class="quiet" { "0" } }
                    @else { a href=(asked.base.instances(&[("machine", name), ("status", "error")])) { (of(Status::Error)) } }
                }
                td class="number" { (of(Status::Completed)) }
                td class="number" { (counted(overdue.attempts, u64::from(MOST))) }
                td class="number" { @if overdue.attempts > 0 { (age(lag)) } @else { "–" } }
                td class="number" { (time(known.last_seen_at, now)) }
            }
        });
    }
    Ok(html! {
        @if rows.is_empty() { (empty("No machine was ever started on this database. Start a program with a `Runtime` on it.")) }
        @else {
            div class="wide" { table {
                thead { tr { th { "machine" } th class="number" { "running" } th class="number" { "error" } th class="number" { "completed" } th class="number" { "due" } th class="number" { "lag" } th class="number" { "last started" } } }
                tbody { @for row in rows { (row) } }
            } }
        }
    })
}

/// One bar of the charts.
#[derive(Default, Clone)]
struct Bar {
    ended: u64,
    failed: u64,
    took: Vec<Duration>,
    late: Vec<Duration>,
}

fn charts(newest: &[Times], now: Timestamp) -> Markup {
    let Some(first) = newest.iter().filter_map(|times| times.finished_at).min() else {
        return html! { h2 { "Attempts" } (empty("No attempt has ended yet.")) };
    };
    let width = (now.since(first) / BARS as u32).max(Duration::from_millis(250));
    let mut bars = vec![Bar::default(); BARS];
    for times in newest {
        let (Some(started), Some(finished)) = (times.started_at, times.finished_at) else { continue };
        let back = (now.since(finished).as_micros() / width.as_micros()) as usize;
        let Some(bar) = BARS.checked_sub(1 + back).and_then(|place| bars.get_mut(place)) else { continue };
        bar.ended += 1;
        bar.failed += u64::from(matches!(times.state, AttemptState::Error | AttemptState::Lost));
        bar.took.push(finished.since(started));
        bar.late.push(started.since(times.scheduled_at));
    }
    for bar in &mut bars {
        bar.took.sort_unstable();
        bar.late.sort_unstable();
    }
    let (ended, failed): (u64, u64) = (bars.iter().map(|bar| bar.ended).sum(), bars.iter().map(|bar| bar.failed).sum());
    let seconds = now.since(first).as_secs_f64().max(0.001);
    let all = |pick: fn(&Bar) -> &Vec<Duration>| {
        let mut all: Vec<Duration> = bars.iter().flat_map(pick).copied().collect();
        all.sort_unstable();
        p95(&all)
    };
    let ms = |span: Duration| span.as_secs_f64() * 1000.0;
    html! {
        h2 { "Attempts" span class="quiet" { " of the last " (age(now.since(first))) } }
        div class="charts" {
            (chart("ended per second", &format!("{:.1}", ended as f64 / seconds), bars.iter().map(|bar| bar.ended as f64), "bar"))
            (chart("failed", &format!("{:.1} %", 100.0 * failed as f64 / ended.max(1) as f64), bars.iter().map(|bar| bar.failed as f64), "bar bad"))
            (chart("duration, p95", &span(all(|bar| &bar.took)), bars.iter().map(|bar| ms(p95(&bar.took))), "bar"))
            (chart("start after due, p95", &span(all(|bar| &bar.late)), bars.iter().map(|bar| ms(p95(&bar.late))), "bar"))
        }
    }
}

fn p95(ascending: &[Duration]) -> Duration {
    percentile(ascending, 0.95)
}

/// The duration that this share of the durations does not exceed; zero if there are none.
pub(super) fn percentile(ascending: &[Duration], share: f64) -> Duration {
    let place = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

/// A small chart of bars, the oldest first.
fn chart(name: &str, figure: &str, values: impl Iterator<Item = f64>, class: &str) -> Markup {
    let values: Vec<f64> = values.collect();
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    html! {
        figure {
            figcaption { (name) " " strong { (figure) } }
            svg viewBox={ "0 0 " (values.len() * 5) " 40" } preserveAspectRatio="none" role="img" aria-label={ (name) ": " (figure) } {
                @for (place, value) in values.iter().enumerate() {
                    @let height = if *value > 0.0 { (value / most * 38.0).max(1.5) } else { 0.0 };
                    rect class=(class) x=(place * 5) y=(format!("{:.1}", 40.0 - height)) width="4" height=(format!("{height:.1}")) {}
                }
            }
        }
    }
}
