//! The trace contexts of a request: those that its calls get, and the one of a call that begins in this process.

use super::Decided;
use crate::changes::Changes;
use crate::commit::environment::Environment;
use crate::commit::outcome::TraceOfCall;
use crate::commit::request::{Reply, Request, RequestKind};
use crate::ids::CallId;

impl<E: Environment> Decided<E> {
    /// Adds the trace contexts that the request brings: that of a sender for its call; that of an attempt for its own call, so that the next
    /// attempt follows it, and for the call that follows from it.
    pub(super) fn traced(mut self, request: &Request) -> Decided<E> {
        let Some(changes) = &mut self.changes else { return self };
        match (&request.kind, &self.reply) {
            (RequestKind::Send(send), _) => {
                self.made = Some(send.id);
                changes.traces.extend(request.trace.clone().map(|trace| (send.id, trace)));
            }
            (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true }))) => {
                self.made = Some(report.fresh);
                let follows = changes.open.as_ref().map(|open| open.attempt.call).filter(|call| *call == report.fresh);
                let calls = [Some(report.attempt.call), follows].into_iter().flatten();
                changes.traces.extend(report.trace.iter().flat_map(|trace| calls.clone().map(move |call| (call, trace.clone()))));
            }
            (RequestKind::StartChild(started), _) => {
                self.made = Some(started.0.id);
                changes.traces.extend(request.trace.clone().map(|trace| (started.0.id, trace)));
            }
            _ => {}
        }
        self
    }

    /// The trace context of the call that the changes leave open. That of a call which waited in the inbox, or of a timer, is in the database.
    pub(super) fn trace_of_open_call(changes: &Changes, made: Option<CallId>) -> TraceOfCall {
        let Some(open) = &changes.open else { return TraceOfCall::Stored };
        let call = open.attempt.call;
        match changes.traces.iter().rfind(|(traced, _)| *traced == call) {
            Some((_, trace)) => TraceOfCall::Known(Some(trace.clone())),
            None if made == Some(call) => TraceOfCall::Known(None),
            None => TraceOfCall::Stored,
        }
    }
}
