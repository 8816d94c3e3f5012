//! Connections through a proxy that cuts them at chosen points or stops responding.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::Spec;
use crate::load::Load;
use crate::process::Process;
use crate::proxy::{self, Cuts};
use crate::report::Report;
use crate::size::Size;
use crate::test_run::TestRun;
use crate::test_server::{Kind, TestServer};

/// The places at which connections are cut.
const CUT_POINTS: [&str; 4] = ["BeforeCommit", "AfterCommit", "AfterRequest", "InAnswer"];
/// The limit until a connection was cut at each place.
const LIMIT: Duration = Duration::from_secs(60);

/// Cuts connections before the commit arrives, after it succeeded, after a request, and within an answer.
pub async fn cut(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut test_run = TestRun::open(test_server, "cut", kind, size.seed).await?;
    let spec = proxy_spec(&mut test_run, Cuts { before_commit: 60, after_commit: 40, after_request: 600, in_answer: 600 }, None)?;
    let (_proxy, url) = start_proxy(&test_run, &spec)?;
    test_run.url = url;
    for _ in 0..2 {
        let node = test_run.spec("node");
        test_run.start(&node)?;
    }
    let sender = test_run.sender();
    test_run.start(&sender)?;
    test_run.until_transitions(10).await?;
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 180))).await;
    let limit = Instant::now() + LIMIT;
    let cuts = loop {
        let cuts = cuts_so_far(&spec)?;
        let is_enough = CUT_POINTS.iter().all(|cut_point| cuts.get(*cut_point).is_some_and(|often| *often >= 3));
        if is_enough || Instant::now() > limit {
            test_run.require(is_enough, "connections were cut several times at each place");
            break cuts;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    test_run.note(format!("cuts: {cuts:?}"));
    Ok(test_run.finish().await?.0)
}

fn cuts_so_far(spec: &proxy::Spec) -> Result<BTreeMap<String, u32>, Failure> {
    let mut cuts = BTreeMap::new();
    for cut_point in std::fs::read_to_string(proxy::cuts_file(spec))?.lines() {
        *cuts.entry(cut_point.to_owned()).or_default() += 1;
    }
    Ok(cuts)
}

/// Stops the proxy for longer than any time limit or lease: connections stay open and do not respond.
pub async fn hang(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let hangs = size.kills(2, 20);
    let mut test_run = TestRun::open(test_server, "hang", kind, size.seed).await?;
    let direct = test_run.url.clone();
    let spec = proxy_spec(&mut test_run, Cuts::default(), None)?;
    let (proxy, url) = start_proxy(&test_run, &spec)?;
    let deadline = Duration::from_secs(1);
    for url in [&url, &url, &direct] {
        let node = test_run.spec("node");
        test_run.start(&Spec { url: url.clone(), deadline, load: Load { ms: 30, ..node.load }, ..node })?;
    }
    for _ in 0..hangs {
        let before = test_run.transitions().await?;
        test_run.until_transitions(before + 100).await?;
        proxy.stop()?;
        tokio::time::sleep(3 * test_run.lease).await;
        let others = test_run.transitions().await?;
        test_run.until_transitions(others + 20).await?;
        proxy.go_on()?;
    }
    test_run.note(format!("{hangs} hangs, in which the others went on"));
    let (mut report, rows) = test_run.finish().await?;
    report.require(rows.ended("lost") > 0, "what hung was taken over");
    Ok(report)
}

/// The settings of a proxy for the scenario's database.
pub fn proxy_spec(test_run: &mut TestRun<'_>, cuts: Cuts, time_zone: Option<&str>) -> Result<proxy::Spec, Failure> {
    Ok(proxy::Spec {
        name: format!("proxy-{}", time_zone.unwrap_or("cuts").replace('/', "-")),
        server: test_run.test_server.socket()?,
        folder: test_run.folder.path().to_owned(),
        cuts,
        time_zone: time_zone.map(str::to_owned),
        seed: test_run.seed,
    })
}

/// Starts a proxy. Returns it with the URL of the scenario's database through it.
pub fn start_proxy(test_run: &TestRun<'_>, spec: &proxy::Spec) -> Result<(Process, String), Failure> {
    let mut proxy = Process::start("proxy", &spec.name, spec, test_run.folder.path(), &[])?;
    let port: u16 = proxy.first_line()?.parse()?;
    let url = test_run.url_at(&format!("127.0.0.1:{port}"))?;
    Ok((proxy, url))
}
