//! The health of a runtime. It is ready while it can work, and not ready while its database is away, its lease is uncertain, its tables do
//! not fit, or a shutdown is in progress.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use fsm::prelude::*;
use fsm::{DatabaseHealth, EngineAccess, Health, LeaseHealth, MigrationHealth};

use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::durable::{Load, Ship, once};
use crate::hostile_database::own_cluster;
use crate::support::Folder;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn ready(health: &Health) {
    assert!(health.is_ready() && health.is_live(), "{health:?}");
    assert_eq!(health.to_string(), "ready");
}

/// Returns the status and the text of the router of probes.
async fn probed(access: &EngineAccess, path: &str) -> (StatusCode, String) {
    let router = fsm::probes(access.clone()).metrics(|| "fsm_build_info 1\n".to_owned()).router();
    let answer = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status();
    (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

async fn probed_ready(access: &EngineAccess) {
    assert_eq!(probed(access, "/livez").await, (StatusCode::OK, "live\n".to_owned()));
    assert_eq!(probed(access, "/readyz").await, (StatusCode::OK, "ready\n".to_owned()));
}

/// Checks that the runtime is live and not ready for this reason.
async fn probed_unready(access: &EngineAccess, reason: &str) {
    assert_eq!(probed(access, "/livez").await.0, StatusCode::OK);
    let (status, text) = probed(access, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(text.starts_with("not ready: ") && text.contains(reason), "{text}");
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn the_probes_answer_with_the_health_and_the_metrics_of_the_program() {
    let runtime = Runtime::builder().database("sqlite::memory:").only::<Ship>().data(once()).start().await.unwrap();
    let access = EngineAccess::from(&runtime);
    probed_ready(&access).await;
    assert_eq!(probed(&access, "/metrics").await, (StatusCode::OK, "fsm_build_info 1\n".to_owned()));
    assert_eq!(probed(&access, "/else").await.0, StatusCode::NOT_FOUND);
    let plain = fsm::probes(&runtime).router();
    let metrics = plain.clone().oneshot(Request::get("/metrics").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(metrics.status(), StatusCode::NOT_FOUND, "the program serves none");
    let json = Request::get("/readyz").header(header::ACCEPT, "application/json").body(Body::empty()).unwrap();
    let json = plain.oneshot(json).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["database"], &json["is_shutting_down"]), (&serde_json::json!("reachable"), &serde_json::json!(false)), "{json}");
    runtime.shutdown().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_is_ready_and_tells_what_runs_and_not_ready_while_it_shuts_down() {
    let stall = once();
    let runtime = Runtime::builder().database("sqlite::memory:").only::<Ship>().data(std::sync::Arc::clone(&stall)).concurrency(3);
    let runtime = runtime.start().await.unwrap();
    let access = EngineAccess::from(&runtime);
    ready(&runtime.health());
    assert_eq!((runtime.health().running, runtime.health().slots, runtime.health().lag), (0, 3, Duration::ZERO));
    assert!(matches!(runtime.health().lease, LeaseHealth::Certain(_)));
    assert_eq!(runtime.health().migrations, MigrationHealth::Current);

    runtime.machine::<Ship>().send("s", Load).await.unwrap();
    stall.entered.notified().await;
    assert_eq!(runtime.health().running, 1);

    let shutdown = tokio::spawn(runtime.shutdown());
    until("the shutdown shows", || access.health().is_shutting_down).await;
    let during = access.health();
    assert!(!during.is_ready() && during.is_live(), "{during:?}");
    assert_eq!(during.to_string(), "not ready: a shutdown goes on");
    probed_unready(&access, "a shutdown goes on").await;
    stall.go_on();
    shutdown.await.unwrap().unwrap();
    assert!(!access.health().is_live(), "its engine has ended");
    assert_eq!(probed(&access, "/livez").await, (StatusCode::SERVICE_UNAVAILABLE, "ended\n".to_owned()));
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_not_ready_before_its_server_is_told_to_stop() {
    let runtime = Runtime::builder().database("sqlite::memory:").only::<Ship>().data(once()).start().await.unwrap();
    let (access, shutdown) = (EngineAccess::from(&runtime), runtime.shutdown_handle());
    let requested = shutdown.requested();
    let told = tokio::spawn(async move {
        requested.await;
        access.health()
    });
    shutdown.shutdown().await.unwrap();
    let told = told.await.unwrap();
    assert!(told.is_shutting_down && !told.is_ready(), "{told:?}");
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_tables_another_version_migrated_is_not_ready() {
    let folder = Folder::new("health");
    let runtime = Runtime::builder().database(folder.url("fsm.db")).only::<Ship>().data(once()).start().await.unwrap();
    ready(&runtime.health());
    let file = rusqlite::Connection::open(folder.path().join("fsm.db")).unwrap();
    file.busy_timeout(LIMIT).unwrap();
    file.execute("insert into fsm_migrations select version + 1000, name, checksum, applied_at from fsm_migrations limit 1", []).unwrap();
    until("the observer sees it", || !runtime.health().is_ready()).await;
    assert!(matches!(runtime.health().migrations, MigrationHealth::Other(_)), "{:?}", runtime.health());
    assert!(runtime.health().is_live(), "a restart does not help");
    probed_unready(&EngineAccess::from(&runtime), "the tables do not fit").await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_database_is_gone_is_not_ready_until_it_is_back() {
    let Some(mut cluster) = own_cluster() else { return };
    let builder = Runtime::builder().database(cluster.url()).only::<Ship>().data(once());
    let runtime = builder.lease(Duration::from_secs(2)).start().await.unwrap();
    ready(&runtime.health());
    cluster.stop().unwrap();
    until("the lease runs out", || runtime.health().lease == LeaseHealth::Uncertain).await;
    until("the observer sees it", || matches!(runtime.health().database, DatabaseHealth::Unreachable(_))).await;
    let gone = runtime.health();
    assert!(!gone.is_ready() && gone.is_live(), "{gone:?}");
    assert!(gone.to_string().contains("the lease of this process is not certain"), "{gone}");
    probed_unready(&EngineAccess::from(&runtime), "the database does not answer").await;
    cluster.start().unwrap();
    until("all is well again", || runtime.health().is_ready()).await;
    probed_ready(&EngineAccess::from(&runtime)).await;
    runtime.shutdown().await.unwrap();
}
