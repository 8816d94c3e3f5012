//! The trace context of the current span, and the links between spans. Without the feature `otel` there is none, and nothing is read or stored.

#[cfg(feature = "otel")]
mod linked;
#[cfg(not(feature = "otel"))]
mod off;
mod reading;

#[cfg(feature = "otel")]
use linked::is_seen;
#[cfg(feature = "otel")]
pub(crate) use linked::{context_of, follow};
#[cfg(not(feature = "otel"))]
use off::is_seen;
#[cfg(not(feature = "otel"))]
pub(crate) use off::{context_of, follow};

/// Returns true if a layer of OpenTelemetry sees the spans of this process.
pub(crate) fn are_seen() -> bool {
    cfg!(feature = "otel") && is_seen(&tracing::info_span!("fsm.start"))
}
