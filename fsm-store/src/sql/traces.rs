//! The trace contexts of calls.

use super::statement::{Many, many};

/// Stores the trace contexts of calls. The last one of a call counts. Uses the primary key.
pub const TRACE_PUT: Many = many(
    "call_id uuid, instance_id uuid, parent text, state text",
    "
    insert into fsm_traces (call_id, instance_id, parent, state)
    select *
    from w
    where true
    on conflict (call_id) do update
    set parent = excluded.parent, state = excluded.state",
);

/// The trace contexts of the calls that have one. Uses the primary key.
pub const TRACES: Many = many(
    "call_id uuid",
    "
    select t.call_id, t.parent, t.state
    from w
    join fsm_traces t on t.call_id = w.call_id",
);

/// Deletes the trace contexts of the calls. Uses the primary key.
pub const PRUNE_TRACES_OF: Many = many("call_id uuid", "delete from fsm_traces where call_id in (select w.call_id from w)");

/// Deletes the trace contexts of the instances. Uses the index by instance.
pub const PRUNE_TRACES: Many = many("instance_id uuid", "delete from fsm_traces where instance_id in (select w.instance_id from w)");
