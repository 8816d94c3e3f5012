//! The worker processes: their leases, and the attempts that they run.

use fsm_runtime::admin::Admin;
use fsm_runtime::error::Error;
use maud::html;

use super::overview::liveness;
use crate::format::{clean, grouped, past, time};
use crate::layout::Page;
use crate::shared::Asked;

pub(crate) async fn page(_asked: &Asked, admin: &Admin) -> Result<Page, Error> {
    let now = admin.now();
    let workers = admin.workers().await?;
    let table = html! {
        @if !workers.is_empty() {
            div class="wide" { table {
                thead { tr { th { "host" } th class="number" { "process" } th { "lease" } th class="number" { "running" } th class="number" { "since" } th { "session" } } }
                tbody {
                    @for worker in &workers {
                        @let is_alive = worker.lease_until > now;
                        tr {
                            td { (clean(&worker.host)) }
                            td class="number" { (worker.pid) }
                            td {
                                @if is_alive { span class="status done" { span aria-hidden="true" { "✓" } " ends " } (time(worker.lease_until, now)) }
                                @else { span class="status error" { span aria-hidden="true" { "✕" } " silent, ended " } (time(worker.lease_until, now)) }
                            }
                            td class="number" { (grouped(worker.executing)) }
                            td class="number" { (past(worker.started_at, now)) }
                            td { code { (worker.session) } }
                        }
                    }
                }
            } }
        }
    };
    Ok(Page::new("Workers", "/workers", now).section("summary", liveness(&workers, now)).section("table", table))
}
