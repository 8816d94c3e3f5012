//! The trace contexts of calls: that of the sender, and after each attempt that of the attempt.

use std::collections::HashMap;

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::trace::TraceContext;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// The trace contexts of the calls that have one.
pub async fn of(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<HashMap<CallId, TraceContext>> {
    let mut found = HashMap::with_capacity(calls.len());
    for row in conn.batch(&sql::TRACES, calls.iter().map(|call| values![call.0]).collect()).await? {
        let context = TraceContext::new(&row.get::<String>(1)?, row.get::<Option<String>>(2)?.as_deref());
        found.extend(context.map(|context| row.call_id(0).map(|call| (call, context))).transpose()?);
    }
    Ok(found)
}

/// Stores the trace contexts of calls that wait in the outbox, with the instances that sent them.
pub async fn put(conn: &mut Conn<'_>, traces: &[(CallId, InstanceId, TraceContext)]) -> Result<()> {
    let rows = traces.iter().map(|(call, instance, context)| values![call.0, instance.0, context.traceparent(), context.tracestate()]);
    conn.put(&sql::TRACE_PUT, rows.collect()).await
}
