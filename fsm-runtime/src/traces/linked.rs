//! Trace contexts by `tracing-opentelemetry`: the one place that reads them from spans and links spans by them.

use std::str::FromStr;

use fsm_core::trace::TraceContext;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Returns true if a layer of OpenTelemetry sees the span.
pub(crate) fn is_seen(span: &tracing::Span) -> bool {
    span.context().span().span_context().is_valid()
}

/// The trace context of a span; `None` if no layer of OpenTelemetry sees it, or if it is not sampled: nobody finds a link to it.
pub(crate) fn context_of(span: &tracing::Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    if !context.is_valid() || !context.is_sampled() {
        return None;
    }
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags().to_u8());
    TraceContext::new(&format!("00-{trace:032x}-{span:016x}-{flags:02x}"), Some(&context.trace_state().header()))
}

/// Links a span that has not begun to the span of `context`, or makes it a child of that one.
pub(crate) fn follow(span: &tracing::Span, context: &TraceContext, as_a_child: bool) {
    let (Ok(trace), Ok(id)) = (TraceId::from_hex(context.trace_id()), SpanId::from_hex(context.span_id())) else { return };
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let state = context.tracestate().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    let remote = SpanContext::new(trace, id, flags, true, state);
    if as_a_child {
        // A span that has begun keeps its parent; ours has not.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    } else {
        span.add_link(remote);
    }
}
