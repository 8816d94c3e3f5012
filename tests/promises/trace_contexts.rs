//! Traces: the spans of a send, of each attempt and of all that follows from it are linked, over retries, timers and other instances.

use std::collections::HashMap;

use fsm::TraceContext;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_runtime::admin::look::InstanceDetails;
use fsm_runtime::admin::{Admin, Opening};
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::promise;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pay;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Book;

#[verb]
#[retry(5, "5s")]
async fn charged(ctx: &mut Ctx<'_>, _event: Pay) -> Result {
    if ctx.attempt() < 3 {
        return Err(std::io::Error::other("the gateway is away").into());
    }
    let key = ctx.key().to_owned();
    ctx.send::<Ledger>(&key, Book)?;
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

#[verb]
async fn booked(_event: Book) -> Result {
    Ok(())
}

fsm! {
    pub(crate) machine Payment = "traced-payment" {
        start charged;
        charged after "1h" -> expired;
        end expired;
    }
}

fsm! {
    machine Ledger = "traced-ledger" {
        start booked;
        end booked;
    }
}

pub(crate) fn builder() -> TestBedBuilder {
    TestBed::builder().only::<Payment>().only::<Ledger>()
}

/// The spans of this thread.
pub(crate) struct Spans {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _guard: tracing::subscriber::DefaultGuard,
}

pub(crate) fn recorded() -> Spans {
    recorded_by(Sampler::AlwaysOn)
}

/// The spans of this thread that the sampler chooses.
pub(crate) fn recorded_by(sampler: Sampler) -> Spans {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).with_sampler(sampler).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    Spans { exporter, provider, _guard }
}

impl Spans {
    pub(crate) fn all(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        self.exporter.get_finished_spans().unwrap()
    }

    /// The spans of attempts, by verb and number.
    fn attempts(&self) -> HashMap<String, SpanData> {
        let attempts = self.all().into_iter().filter(|span| span.name == "fsm.attempt");
        attempts.map(|span| (format!("{} {}", field(&span, "fsm.verb"), field(&span, "fsm.attempt")), span)).collect()
    }

    pub(crate) fn named(&self, name: &str) -> SpanData {
        self.all().into_iter().find(|span| span.name == name).unwrap()
    }
}

pub(crate) fn field(span: &SpanData, name: &str) -> String {
    span.attributes.iter().find(|field| field.key.as_str() == name).map(|field| field.value.to_string()).unwrap_or_default()
}

/// The span that `span` links to is `other`.
pub(crate) fn follows(span: &SpanData, other: &SpanData) -> bool {
    let links: Vec<_> = span.links.iter().map(|link| (link.span_context.trace_id(), link.span_context.span_id())).collect();
    links == [(other.span_context.trace_id(), other.span_context.span_id())]
}

/// A request sends an event; the third attempt succeeds and sends to another machine; the timer runs out an hour later.
async fn one_payment(bed: &TestBed) {
    let payments = bed.machine::<Payment>();
    async { payments.send("p-1", Pay).await.unwrap() }.instrument(tracing::info_span!("request")).await;
    bed.run_until_idle().await;
    bed.advance(HOUR * 2).await;
    assert_eq!(payments.get("p-1").await.unwrap().unwrap().state, Some(PaymentState::Expired));
}

promise! {
    async fn each_attempt_links_to_what_it_follows_over_retries_machines_and_timers(bed in builder()) {
        let spans = recorded();
        let bed = builder().beside(bed).await.unwrap();
        one_payment(&bed).await;
        let (send, attempts) = (spans.named("fsm.send"), spans.attempts());
        assert_eq!((send.parent_span_id, &send.span_kind), (spans.named("request").span_context.span_id(), &SpanKind::Producer));
        assert_eq!(attempts.len(), 5, "{:?}", attempts.keys());
        for (later, earlier) in [("charged 1", &send), ("charged 2", &attempts["charged 1"]), ("charged 3", &attempts["charged 2"]),
            ("booked 1", &attempts["charged 3"]), ("expired 1", &attempts["charged 3"])]
        {
            let span = &attempts[later];
            assert!(follows(span, earlier), "{later} links to {:?}", span.links);
            assert_eq!(span.span_kind, SpanKind::Consumer);
            assert_ne!(span.span_context.trace_id(), send.span_context.trace_id(), "hours may lie between");
        }
        let third = &attempts["charged 3"];
        let fields = ["fsm.machine", "fsm.key", "fsm.event", "fsm.to", "fsm.max_attempts"].map(|name| field(third, name));
        assert_eq!(fields, ["traced-payment", "p-1", "Pay", "charged", "6"]);
        let expired = field(&attempts["expired 1"], "fsm.from");
        assert_eq!(expired, "charged");

        let details = details(&bed, "p-1").await;
        let trace = attempts["expired 1"].span_context.trace_id().to_string();
        assert_eq!(details.trace.unwrap().trace_id(), trace);
    }
}

promise! {
    async fn an_attempt_is_a_child_of_its_sender_if_the_builder_says_so(bed in builder()) {
        let spans = recorded();
        let bed = builder().with(|builder| builder.parent_from_send(true)).beside(bed).await.unwrap();
        one_payment(&bed).await;
        let (request, attempts) = (spans.named("request"), spans.attempts());
        assert!(attempts.values().all(|attempt| attempt.span_context.trace_id() == request.span_context.trace_id()));
        assert_eq!(attempts["charged 1"].parent_span_id, spans.named("fsm.send").span_context.span_id());
        assert_eq!(attempts["booked 1"].parent_span_id, attempts["charged 3"].span_context.span_id());
    }
}

/// The details of a payment for operators.
async fn details(bed: &TestBed, key: &str) -> InstanceDetails {
    let admin = Admin::open(Opening::inside(bed).of_key(key)).await.unwrap();
    admin.details("traced-payment", key).await.unwrap()
}

promise! {
    /// A program without OpenTelemetry passes the headers of a request on.
    async fn a_trace_that_the_caller_names_is_stored_with_the_event_wherever_it_waits(bed in builder()) {
        let context = TraceContext::new(PARENT, Some("vendor=1")).unwrap();
        let payments = bed.machine::<Payment>();
        payments.send("delayed", Pay).after(HOUR).trace(context.clone()).await.unwrap();
        bed.advance(HOUR).await;
        assert_eq!(details(bed, "delayed").await.trace, Some(context.clone()));
        payments.send("now", Pay).trace(context.clone()).dedup("1").await.unwrap();
        payments.send("now", Pay).dedup("1").await.unwrap();
        assert_eq!(details(bed, "now").await.trace, Some(context));
        assert_eq!(payments.get("now").await.unwrap().unwrap().trace.unwrap().traceparent(), PARENT);
        payments.send("other", Pay).await.unwrap();
        assert_eq!(details(bed, "other").await.trace, None);
    }
}
