//! The log, the spans and the metrics of the program: installed before the runtime is built, and flushed at its end.

use std::net::SocketAddr;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

type Failed = Box<dyn std::error::Error>;

/// The options of the command line.
#[derive(Default)]
pub struct Wanted {
    /// The address of a collector of OpenTelemetry, such as `http://127.0.0.1:4317`.
    pub otlp: Option<String>,
    /// The address at which Prometheus finds the metrics.
    pub metrics: Option<SocketAddr>,
    /// Writes each record of the log as one line of JSON.
    pub has_json_log: bool,
}

/// The exporter of spans. Call [`flush`](Telemetry::flush) before the program ends.
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
}

/// Installs the subscriber of the log and of the spans, and the recorder of the metrics. Needs a runtime of tokio, for the connection to the
/// collector.
pub fn install(wanted: &Wanted) -> Result<Telemetry, Failed> {
    let spans = wanted.otlp.as_deref().map(spans_to).transpose()?;
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = if wanted.has_json_log { log.json().boxed() } else { log.boxed() };
    // The engine's spans are of the level info. The filter of the log must not hide them.
    let export =
        spans.as_ref().map(|spans| tracing_opentelemetry::layer().with_tracer(spans.tracer("payment")).with_filter(LevelFilter::INFO));
    tracing_subscriber::registry().with(log.with_filter(EnvFilter::from_env("FSM_LOG"))).with(export).try_init()?;
    if let Some(address) = wanted.metrics {
        serve_metrics(address).map_err(|error| format!("metrics cannot be served at {address}: {error}"))?;
    }
    Ok(Telemetry { spans })
}

/// The exporter to a collector. It sends batches from a thread of its own.
fn spans_to(url: &str) -> Result<SdkTracerProvider, Failed> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(url).build()?;
    println!("spans are sent to {url}");
    let resource = Resource::builder().with_service_name("payment").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

fn serve_metrics(address: SocketAddr) -> Result<(), metrics_exporter_prometheus::BuildError> {
    let exporter = PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), fsm::SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), fsm::SIZE_BUCKETS)?;
    exporter.install()?;
    println!("metrics at http://{address}/metrics");
    Ok(())
}

impl Telemetry {
    /// Sends the spans that are left, and prints an error: a collector that is away does not fail a payment.
    pub fn flush(&self) {
        if let Some(spans) = &self.spans
            && let Err(error) = spans.shutdown()
        {
            eprintln!("payment: spans were not sent: {error}");
        }
    }
}
