//! A payment followed by its trace, from an HTTP request on, as a receiver of OTLP gets the spans.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use fsm::Handle;
use fsm::testing::TestBed;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::promise;
use crate::trace_contexts::{HOUR, Pay, Payment, builder};

/// The header `traceparent` of the browser that pays, and its parts.
const BROWSER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// The spans that a receiver of OTLP has got.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(&self, request: Request<ExportTraceServiceRequest>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A receiver, and an exporter for the spans of this thread. Both have a runtime of their own, because a flush blocks this thread.
struct Collector {
    received: Received,
    exporter: SdkTracerProvider,
    runtime: Option<tokio::runtime::Runtime>,
    _guard: tracing::subscriber::DefaultGuard,
}

fn collector() -> Collector {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let received = Received::default();
    let incoming = {
        let _inside = runtime.enter();
        TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
    };
    let address = incoming.local_addr().unwrap();
    runtime.spawn(Server::builder().add_service(TraceServiceServer::new(received.clone())).serve_with_incoming(incoming));
    let exporter = {
        let _inside = runtime.enter();
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(format!("http://{address}")).build().unwrap();
        SdkTracerProvider::builder().with_batch_exporter(exporter).build()
    };
    let layer = tracing_opentelemetry::layer().with_tracer(exporter.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    Collector { received, exporter, runtime: Some(runtime), _guard }
}

impl Collector {
    /// The spans received so far, after those that have ended were sent.
    fn spans(&self) -> Vec<Span> {
        self.exporter.force_flush().unwrap();
        self.received.0.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // A runtime must not be dropped in another one, as it waits for its tasks.
        self.runtime.take().unwrap().shutdown_background();
    }
}

/// The span of `header`, which another process has begun.
fn remote(header: &str) -> Context {
    let parts: Vec<_> = header.split('-').collect();
    let (trace, span) = (TraceId::from_hex(parts[1]).unwrap(), SpanId::from_hex(parts[2]).unwrap());
    Context::new().with_remote_span_context(SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default()))
}

/// Takes a payment. The span of the request continues the trace of the browser, as a layer for HTTP would do it.
async fn pay(State(payments): State<Handle<Payment>>, Path(key): Path<String>, headers: HeaderMap) -> StatusCode {
    let span = tracing::info_span!("POST /payments/{key}", otel.kind = "server");
    span.set_parent(remote(headers["traceparent"].to_str().unwrap())).unwrap();
    payments.send(&key, Pay).into_future().instrument(span).await.unwrap();
    StatusCode::CREATED
}

/// Sends one HTTP request to a server with the route, and returns the first line of its answer.
async fn request(payments: Handle<Payment>, key: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/payments/{key}", post(pay)).with_state(payments);
    let server = tokio::spawn(axum::serve(listener, routes).into_future());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (trace, span) = BROWSER;
    let text = format!("POST /payments/{key} HTTP/1.0\r\nhost: shop\r\ntraceparent: 00-{trace}-{span}-01\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    server.abort();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn field(span: &Span, name: &str) -> Option<Value> {
    span.attributes.iter().find(|field| field.key == name)?.value.clone()?.value
}

fn text(text: &str) -> Option<Value> {
    Some(Value::StringValue(text.to_owned()))
}

/// The attempt of a verb with this number.
fn attempt<'s>(spans: &'s [Span], verb: &str, number: i64) -> &'s Span {
    let is_it = |span: &&Span| {
        span.name == "fsm.attempt" && field(span, "fsm.verb") == text(verb) && field(span, "fsm.attempt") == Some(Value::IntValue(number))
    };
    spans.iter().find(is_it).unwrap_or_else(|| panic!("attempt {number} of {verb}"))
}

fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("span {name}"))
}

/// The only link of `later` is to `earlier`, and the two are in different traces.
fn links_to(later: &Span, earlier: &Span) {
    let links: Vec<_> = later.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    assert_eq!(links, [(hex(&earlier.trace_id), hex(&earlier.span_id))], "{later:?}");
    assert_ne!(later.trace_id, earlier.trace_id);
    assert!(later.parent_span_id.is_empty());
}

promise! {
    /// A request sends an event; the third attempt succeeds and sends to an instance of another machine; a timer runs out an hour later.
    async fn one_payment_is_followed_from_its_http_request_to_its_end_by_what_an_otlp_receiver_gets(bed in builder()) {
        let collector = collector();
        let bed = builder().beside(bed).await.unwrap();
        assert_eq!(request(bed.machine(), "p-1").await, "HTTP/1.0 201 Created");
        paid(&bed).await;

        let spans = collector.spans();
        let request = named(&spans, "POST /payments/{key}");
        assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (BROWSER.0.to_owned(), BROWSER.1.to_owned()));
        let send = named(&spans, "fsm.send");
        assert_eq!((&send.trace_id, &send.parent_span_id), (&request.trace_id, &request.span_id));
        assert_eq!((send.kind(), field(send, "fsm.key"), field(send, "fsm.event")), (SpanKind::Producer, text("p-1"), text("Pay")));

        let charged: Vec<_> = (1..=3).map(|number| attempt(&spans, "charged", number)).collect();
        for pair in [send, charged[0], charged[1], charged[2]].windows(2) {
            links_to(pair[1], pair[0]);
        }
        links_to(attempt(&spans, "booked", 1), charged[2]);
        links_to(attempt(&spans, "expired", 1), charged[2]);
        assert_eq!(spans.iter().filter(|span| span.name == "fsm.attempt").count(), 5);

        for (number, outcome) in [(0, SpanStatus::Error), (1, SpanStatus::Error), (2, SpanStatus::Ok)] {
            let span = charged[number];
            assert_eq!((span.status.as_ref().unwrap().code(), span.kind()), (outcome, SpanKind::Consumer), "attempt {}", number + 1);
            let fields = ["fsm.machine", "fsm.key", "fsm.event", "fsm.to"].map(|name| field(span, name));
            assert_eq!(fields, ["traced-payment", "p-1", "Pay", "charged"].map(text));
            assert_eq!(field(span, "fsm.max_attempts"), Some(Value::IntValue(6)));
        }
        assert_eq!(field(attempt(&spans, "booked", 1), "fsm.machine"), text("traced-ledger"));
        assert_eq!(field(attempt(&spans, "expired", 1), "fsm.from"), text("charged"));
    }
}

/// Runs the attempts, and the timer an hour after the last one.
async fn paid(bed: &TestBed) {
    bed.run_until_idle().await;
    bed.advance(HOUR + Duration::from_secs(60)).await;
}
