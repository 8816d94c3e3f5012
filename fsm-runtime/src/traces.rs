//! The trace context of the current span, and the links between spans. Without the feature `otel` there is none, and nothing is read or stored.

use std::sync::atomic::Ordering;

use fsm_core::machine::{TIMEOUT, is_of_children};
use fsm_core::trace::TraceContext;

use crate::engine::Engine;
use crate::error::Error;
use crate::store::claim::{Claimed, TraceOfCall};
use crate::store::traces;

#[cfg(feature = "otel")]
mod linked;
#[cfg(not(feature = "otel"))]
mod off;

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

impl Engine {
    /// Returns true if calls may have trace contexts, as far as this process knows.
    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced.load(Ordering::Relaxed)
    }

    /// The span that the attempt follows: that of the attempt before, or that of the sender. A timer and the end of children have no sender;
    /// their calls follow the call before. An error is logged: an attempt runs without its trace rather than not at all.
    ///
    /// The context of a first attempt that began in the commit of its send is known. Others are read.
    pub(crate) async fn followed(&self, claimed: &Claimed) -> Option<TraceContext> {
        if !self.is_traced() {
            return None;
        }
        if let TraceOfCall::Known(trace) = &claimed.trace {
            return trace.clone();
        }
        let attempt = &*claimed.attempt;
        let found = async {
            let mut reader = self.store.reader().await?;
            let own = traces::of(&mut reader.conn(), attempt.call).await?;
            let has_sender = attempt.event != TIMEOUT && !is_of_children(&attempt.event);
            match attempt.previous.filter(|_| own.is_none() && !has_sender) {
                Some(before) => Ok::<_, Error>(traces::of(&mut reader.conn(), before).await?),
                None => Ok(own),
            }
        };
        found.await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the trace of an attempt cannot be read; the attempt runs without it");
            None
        })
    }
}
