//! Reads the trace contexts of claimed attempts.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use fsm_core::call::Attempt;
use fsm_core::commit::outcome::TraceOfCall;
use fsm_core::ids::CallId;
use fsm_core::machine::{TIMEOUT, is_of_children};
use fsm_store::claim::Claimed;
use fsm_store::traces;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Returns true if calls may have trace contexts, as far as this process knows.
    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced.load(Ordering::Relaxed)
    }

    /// Adds to claimed attempts the span that each follows: that of the attempt before, or that of the sender. A timer and the end of children
    /// have no sender; their calls follow the call before. That of a first attempt that began in the commit of its send is known; the others are
    /// read at once. An error is logged: attempts run without their traces rather than not at all.
    pub(crate) async fn read_traces(&self, claimed: &mut [Claimed]) {
        if !self.is_traced() || !claimed.iter().any(|claimed| claimed.trace == TraceOfCall::Stored) {
            return;
        }
        let stored = || claimed.iter().filter(|claimed| claimed.trace == TraceOfCall::Stored).map(|claimed| &*claimed.attempt);
        let calls: Vec<_> = stored().flat_map(|attempt| [Some(attempt.call), before(attempt)]).flatten().collect();
        let found = async { Ok::<_, Error>(traces::of(&mut self.store.reader().await?.conn(), &calls).await?) };
        let found = found.await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the traces of attempts cannot be read; the attempts run without them");
            HashMap::new()
        });
        for claimed in claimed.iter_mut().filter(|claimed| claimed.trace == TraceOfCall::Stored) {
            let attempt = &*claimed.attempt;
            let of = |call: Option<CallId>| call.and_then(|call| found.get(&call));
            claimed.trace = TraceOfCall::Known(of(Some(attempt.call)).or_else(|| of(before(attempt))).cloned());
        }
    }
}

/// The call before, for an attempt of a call without a sender.
fn before(attempt: &Attempt) -> Option<CallId> {
    attempt.previous.filter(|_| attempt.event == TIMEOUT || is_of_children(&attempt.event))
}
