//! The probes of an orchestrator: `/livez`, `/readyz` and `/metrics` as an axum router.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fsm_runtime::engine_access::EngineAccess;
use fsm_runtime::health::Health;

type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The probes of a process. Its settings are methods; [`router`](Probes::router) makes it an axum router.
#[must_use = "probes do nothing until their router is served"]
pub struct Probes {
    engine: EngineAccess,
    metrics: Option<Render>,
}

/// The probes of a runtime or a client: `/livez`, `/readyz`, and `/metrics` if it is set.
///
/// | path | answer |
/// |---|---|
/// | `/livez` | 200 while [`Health::is_live`]; 503 once the engine has ended, and the process must be restarted |
/// | `/readyz` | 200 while [`Health::is_ready`]; 503 while the database does not answer, the lease is uncertain, the tables do not fit, or a shutdown goes on |
/// | `/metrics` | the text of [`metrics`](Probes::metrics); 404 without it |
///
/// The body is one line, `ready` or the reasons why not. A request `Accept: application/json` gets the whole [`Health`] as JSON. The probes
/// read memory only: they answer while the database does not. They need no authentication and show no key, payload or record.
///
/// A client has no lease and does not observe the database, so its `/readyz` says nothing about the database.
///
/// ```no_run
/// # use fsm_runtime::runtime::Runtime;
/// # async fn example(runtime: &Runtime) -> std::io::Result<()> {
/// let app: axum::Router = fsm_console::probes(runtime).router();
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
/// axum::serve(listener, app).await
/// # }
/// ```
pub fn probes(inside: impl Into<EngineAccess>) -> Probes {
    Probes { engine: inside.into(), metrics: None }
}

impl Probes {
    /// Serves `/metrics` with this text, such as `PrometheusHandle::render` of the crate `metrics-exporter-prometheus`. The engine reports
    /// to the recorder that the program installs. It has no exporter of its own.
    pub fn metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Probes {
        Probes { metrics: Some(Arc::new(render)), ..self }
    }

    /// The probes as a router.
    pub fn router(self) -> Router {
        Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).route("/metrics", get(metrics)).with_state(Arc::new(self))
    }
}

async fn livez(State(probes): State<Arc<Probes>>, headers: axum::http::HeaderMap) -> Response {
    let health = probes.engine.health();
    let word = if health.is_live() { "live" } else { "ended" };
    answer(&health, health.is_live(), word.to_owned(), &headers)
}

async fn readyz(State(probes): State<Arc<Probes>>, headers: axum::http::HeaderMap) -> Response {
    let health = probes.engine.health();
    answer(&health, health.is_ready(), health.to_string(), &headers)
}

fn answer(health: &Health, is_well: bool, line: String, headers: &axum::http::HeaderMap) -> Response {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let wants_json = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("json"));
    let no_store = (header::CACHE_CONTROL, "no-store");
    if wants_json { (status, [no_store], axum::Json(health)).into_response() } else { (status, [no_store], line + "\n").into_response() }
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    match &probes.metrics {
        Some(render) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()).into_response(),
        None => (StatusCode::NOT_FOUND, "this program serves no metrics\n").into_response(),
    }
}
