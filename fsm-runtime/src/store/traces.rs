//! The trace contexts of calls: that of the sender, and after each attempt that of the attempt.

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::trace::TraceContext;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// The trace context of a call; `None` if its sender had none.
pub async fn of(conn: &mut Conn<'_>, call: CallId) -> Result<Option<TraceContext>> {
    let rows = conn.rows(&sql::TRACE, &values![call.0]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(TraceContext::new(&row.get::<String>(0)?, row.get::<Option<String>>(1)?.as_deref()))
}

/// Stores the trace contexts of calls that wait in the outbox, with the instances that sent them.
pub async fn put(conn: &mut Conn<'_>, traces: &[(CallId, InstanceId, TraceContext)]) -> Result<()> {
    let rows = traces.iter().map(|(call, instance, context)| values![call.0, instance.0, context.traceparent(), context.tracestate()]);
    conn.put(&sql::TRACE_PUT, rows.collect()).await
}
