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
use crate::stage::Stage;
use crate::test_server::{Kind, TestServer};

/// The places at which connections are cut.
const PLACES: [&str; 4] = ["BeforeCommit", "AfterCommit", "AfterRequest", "InAnswer"];
/// The limit until a connection was cut at each place.
const LIMIT: Duration = Duration::from_secs(60);

/// Cuts connections before the commit arrives, after it succeeded, after a request, and within an answer.
pub async fn cut(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let mut stage = Stage::open(test_server, "cut", kind, size.seed).await?;
    let spec = proxy_spec(&mut stage, Cuts { before_commit: 60, after_commit: 40, after_request: 600, in_answer: 600 }, None)?;
    let (_proxy, url) = start_proxy(&stage, &spec)?;
    stage.url = url;
    for _ in 0..2 {
        let node = stage.spec("node");
        stage.start(&node)?;
    }
    let sender = stage.sender();
    stage.start(&sender)?;
    stage.until_transitions(10).await?;
    tokio::time::sleep(Duration::from_secs(size.seconds(6, 180))).await;
    let limit = Instant::now() + LIMIT;
    let cuts = loop {
        let cuts = cuts_so_far(&spec)?;
        let is_enough = PLACES.iter().all(|place| cuts.get(*place).is_some_and(|often| *often >= 3));
        if is_enough || Instant::now() > limit {
            stage.require(is_enough, "connections were cut several times at each place");
            break cuts;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    stage.note(format!("cuts: {cuts:?}"));
    Ok(stage.finish().await?.0)
}

fn cuts_so_far(spec: &proxy::Spec) -> Result<BTreeMap<String, u32>, Failure> {
    let mut cuts = BTreeMap::new();
    for place in std::fs::read_to_string(proxy::cuts_of(spec))?.lines() {
        *cuts.entry(place.to_owned()).or_default() += 1;
    }
    Ok(cuts)
}

/// Stops the proxy for longer than any time limit or lease: connections stay open and do not respond.
pub async fn hang(test_server: &mut TestServer, kind: Kind, size: Size) -> Result<Report, Failure> {
    let hangs = size.kills(2, 20);
    let mut stage = Stage::open(test_server, "hang", kind, size.seed).await?;
    let direct = stage.url.clone();
    let spec = proxy_spec(&mut stage, Cuts::default(), None)?;
    let (proxy, url) = start_proxy(&stage, &spec)?;
    let deadline = Duration::from_secs(1);
    for url in [&url, &url, &direct] {
        let node = stage.spec("node");
        stage.start(&Spec { url: url.clone(), deadline, load: Load { ms: 30, ..node.load }, ..node })?;
    }
    for _ in 0..hangs {
        let before = stage.transitions().await?;
        stage.until_transitions(before + 100).await?;
        proxy.stop()?;
        tokio::time::sleep(3 * stage.lease).await;
        let others = stage.transitions().await?;
        stage.until_transitions(others + 20).await?;
        proxy.go_on()?;
    }
    stage.note(format!("{hangs} hangs, in which the others went on"));
    let (mut report, rows) = stage.finish().await?;
    report.require(rows.ended("lost") > 0, "what hung was taken over");
    Ok(report)
}

/// The settings of a proxy for the scenario's database.
pub fn proxy_spec(stage: &mut Stage<'_>, cuts: Cuts, time_zone: Option<&str>) -> Result<proxy::Spec, Failure> {
    Ok(proxy::Spec {
        name: format!("proxy-{}", time_zone.unwrap_or("cuts").replace('/', "-")),
        server: stage.test_server.socket()?,
        folder: stage.folder.path().to_owned(),
        cuts,
        time_zone: time_zone.map(str::to_owned),
        seed: stage.seed,
    })
}

/// Starts a proxy. Returns it with the URL of the scenario's database through it.
pub fn start_proxy(stage: &Stage<'_>, spec: &proxy::Spec) -> Result<(Process, String), Failure> {
    let mut proxy = Process::start("proxy", &spec.name, spec, stage.folder.path(), &[])?;
    let port: u16 = proxy.first_line()?.parse()?;
    let url = stage.url_at(&format!("127.0.0.1:{port}"))?;
    Ok((proxy, url))
}
