//! The metrics with a real Prometheus: every query of the dashboard has a result, waiting work shows as lag, and the alert rules work.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::Folder;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Go {
    how: String,
}

/// The gate that attempts wait for.
struct Gate(tokio::sync::Semaphore);

#[verb]
#[retry(1, "1ms")]
async fn passed(gate: Data<Gate>, event: Go) -> Result {
    match event.how.as_str() {
        "fails" => Err(Failure::new("no")),
        "waits" => {
            drop(gate.0.acquire().await?);
            Ok(())
        }
        _ => Ok(()),
    }
}

fsm! {
    machine Observed = "observed" {
        start passed;
        end passed;
    }
}

fn monitoring(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring").join(file)
}

/// Returns true if the program of Prometheus is installed. `cargo xtask test` installs it if the system's package manager can.
fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("NOT TESTED: `{program}` is not installed");
    }
    is_there
}

fn promtool(words: [&str; 2], file: &str) {
    let output = Command::new("promtool").args(words).arg(monitoring(file)).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_alert_rules_are_valid_and_alert_when_they_should() {
    if is_installed("promtool") {
        promtool(["check", "rules"], "alerts.yml");
        promtool(["test", "rules"], "alerts.test.yml");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A Prometheus server of this test. It ends when the value is dropped.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(folder: &Path, target: SocketAddr) -> Prometheus {
        let rules = monitoring("alerts.yml");
        let config = format!(
            "global: {{scrape_interval: 250ms, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n- {{job_name: fsm, static_configs: [{{targets: ['{target}']}}]}}\n",
            rules.display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        Prometheus { process, address }
    }

    /// Returns the answer of its HTTP API, or `None` while it does not listen.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: prometheus\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the series of a query, or the reason why there are none.
    fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).ok_or("no answer")?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default()),
            _ => Err(answer["error"].as_str().unwrap_or("no answer").to_owned()),
        }
    }

    /// Returns the value of a query with one series.
    fn value(&self, query: &str) -> Option<f64> {
        self.query(query).ok()?.first()?["value"][1].as_str()?.parse().ok()
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Every query of the dashboard, as Grafana would send it.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(monitoring("grafana-dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "30s").replace("$machine", ".*")).collect()
}

#[test]
fn the_dashboard_shows_every_metric() {
    let all = queries().join("\n");
    let missing: Vec<_> =
        fsm::METRICS.iter().map(|(name, ..)| *name).filter(|name| *name != "fsm_build_info" && !all.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_has_a_result_and_waiting_work_shows_as_lag() {
    if !is_installed("prometheus") {
        return;
    }
    let folder = Folder::new("prometheus");
    let target = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let exporter = PrometheusBuilder::new().with_http_listener(target);
    let exporter = exporter.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), fsm::SECONDS_BUCKETS).unwrap();
    let exporter = exporter.set_buckets_for_metric(Matcher::Suffix("_size".into()), fsm::SIZE_BUCKETS).unwrap();
    exporter.install().unwrap();
    let prometheus = Prometheus::start(folder.path(), target);

    let builder = Runtime::builder().database(folder.url("fsm.db")).only::<Observed>().data(Gate(tokio::sync::Semaphore::new(0)));
    let builder = builder.limit("gateway", Limit::concurrency(1));
    let runtime = builder.concurrency(1).lease(Duration::from_secs(4)).start().await.unwrap();
    let observed = runtime.machine::<Observed>();
    for (key, how) in [("a", "passes"), ("b", "fails")] {
        observed.send(key, Go { how: how.into() }).await.unwrap();
        observed.settled(key).within(LIMIT).await.unwrap();
    }
    // One attempt takes the only slot until the gate opens; three are due and wait.
    for key in ["c", "d", "e", "f"] {
        observed.send(key, Go { how: "waits".into() }).await.unwrap();
    }
    prometheus.until("the calls that wait are seen", || prometheus.value("fsm_due_calls{machine=\"observed\"}") == Some(3.0)).await;
    prometheus.until("their lag grows", || prometheus.value("fsm_oldest_due_seconds").is_some_and(|lag| lag > 1.0)).await;
    prometheus.until("health tells the same", || runtime.health().lag > Duration::from_secs(1)).await;
    assert_eq!(prometheus.value("sum(fsm_exhausted_total)"), Some(1.0));

    let mut left: BTreeSet<String> = queries().into_iter().collect();
    // One of the queries needs a database error.
    metrics::counter!("fsm_database_errors_total", "kind" => "contended").increment(1);
    let begin = Instant::now();
    let mut round = 0;
    while !left.is_empty() {
        round += 1;
        observed.send(format!("more-{round}"), Go { how: "waits".into() }).await.unwrap();
        let mut errors = Vec::new();
        left.retain(|query| match prometheus.query(query) {
            Ok(series) => series.is_empty(),
            Err(error) => {
                errors.push(error);
                true
            }
        });
        assert!(begin.elapsed() < LIMIT, "no result: {left:#?} {errors:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let rules = prometheus.get("/api/v1/rules").unwrap();
    assert!(rules.to_string().contains("FsmWorkWaits") && !rules.to_string().contains("\"health\":\"err\""), "{rules}");
    let health = runtime.health();
    assert!(health.is_ready() && health.running == 1, "{health:?}");
}
