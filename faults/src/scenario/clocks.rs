//! Processes with wrong clocks, and processes with correct clocks in four time zones.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::cut::{proxy_spec, start_proxy};
use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::proxy::Cuts;
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

const AN_HOUR_S: i64 = 3600;

/// With PostgreSQL, all processes use the server's clock, and no attempt is lost. With SQLite, a process whose clock is ahead treats the
/// leases of others as expired: attempts are lost, but no event is processed twice.
pub async fn clocks(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "clocks", kind, size.seed).await?;
    if kind == Kind::Postgres {
        test_run.lease = Duration::from_secs(10);
    }
    for clock_ahead_s in [0, AN_HOUR_S, -AN_HOUR_S] {
        let spec = test_run.spec("node");
        // A delayed close is delivered by the clock of its sender. With SQLite, a clock that is an hour ahead would delay it for too long.
        test_run.start(&Spec { clock_ahead_s, load: Load { has_delays: kind == Kind::Postgres, ..spec.load }, ..spec })?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(5, 60))).await;
    let (mut report, rows) = test_run.finish().await?;
    if kind == Kind::Postgres {
        report.require(rows.ended("lost") == 0, "nothing is lost");
        report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error");
    }
    Ok(report)
}

/// Four processes in four time zones. With PostgreSQL, their sessions have these time zones too.
pub async fn zones(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "zones", kind, size.seed).await?;
    test_run.lease = Duration::from_secs(10);
    let mut proxies = Vec::new();
    for zone in ["Pacific/Kiritimati", "America/St_Johns", "Asia/Kathmandu", "UTC"] {
        let mut spec = test_run.spec("node");
        if kind == Kind::Postgres {
            let proxy_of_zone = proxy_spec(&mut test_run, Cuts::default(), Some(zone))?;
            let (proxy, url) = start_proxy(&test_run, &proxy_of_zone)?;
            proxies.push(proxy);
            let mut session = PgConnection::connect(&url).await?;
            let shown: String = sqlx::query_scalar("show timezone").fetch_one(&mut session).await?;
            test_run.require(shown == zone, format!("a session is in {zone}, not in {shown}"));
            spec = Spec { url, ..spec };
        }
        test_run.start_with(&spec, &[("TZ", zone)])?;
    }
    tokio::time::sleep(Duration::from_secs(size.seconds(4, 30))).await;
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") == 0, "nothing is lost");
    report.require(rows.instances.values().all(|one| one.status != "error"), "no instance is in error");
    Ok(report)
}
