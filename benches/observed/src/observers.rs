//! The observers of a process: a recorder of metrics and a layer for traces, as far as the program has them.

use std::error::Error;

/// The installed observers, which are shut down when this value is dropped.
#[derive(Default)]
pub struct Observers {
    #[cfg(feature = "otel")]
    _spans: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Installs the wanted observers. An error if the program is built without their features.
pub fn install(has_metrics: bool, traces: Option<f64>) -> Result<Observers, Box<dyn Error>> {
    if has_metrics {
        metrics()?;
    }
    traces.map_or_else(|| Ok(Observers::default()), spans)
}

#[cfg(not(feature = "metrics"))]
fn metrics() -> Result<(), Box<dyn Error>> {
    Err("this program is built without the feature `metrics`".into())
}

/// Installs the exporter of Prometheus, and renders its text each second, more often than a server of Prometheus asks for it.
#[cfg(feature = "metrics")]
fn metrics() -> Result<(), Box<dyn Error>> {
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

    let exporter = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), fsm::SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), fsm::SIZE_BUCKETS)?
        .install_recorder()?;
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
            drop(exporter.render());
        }
    });
    Ok(())
}

#[cfg(not(feature = "otel"))]
fn spans(_share: f64) -> Result<Observers, Box<dyn Error>> {
    Err("this program is built without the feature `otel`".into())
}

/// Installs a layer that records this share of the traces. Their exporter drops them: a collector is another process.
#[cfg(feature = "otel")]
fn spans(share: f64) -> Result<Observers, Box<dyn Error>> {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;

    #[derive(Debug)]
    struct Nowhere;
    impl SpanExporter for Nowhere {
        async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
            Ok(())
        }
    }

    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share)));
    let spans = SdkTracerProvider::builder().with_batch_exporter(Nowhere).with_sampler(sampler).build();
    let layer = tracing_opentelemetry::layer().with_tracer(spans.tracer("observed")).with_filter(LevelFilter::INFO);
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(Observers { _spans: Some(spans) })
}
