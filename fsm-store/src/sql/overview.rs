//! The overview of the engine: failing instances, coming and overdue work, and the newest calls.

use super::statement::{Sql, same};

/// The instances of machine `$1` in error before `$2`, at most `$3`, the newest first, with the verb that failed. Uses the index of
/// instances in error.
pub const FAILING: Sql = same(
    "
    select i.instance_id, i.key, i.state, i.verb, i.error, i.updated_at
    from fsm_instances i
    where i.machine = $1 and i.status = 'error' and i.instance_id < $2
    order by i.instance_id desc
    limit $3",
);

/// The first 200 limits, and values of limits, for which calls wait. Each is found from the one before.
macro_rules! with_buckets {
    () => {
        "
    with recursive walk (bucket, number) as (
        select (select min(d.waits_for) from fsm_instances d where d.waits_for is not null), 1
        union all
        select (select min(d.waits_for) from fsm_instances d where d.waits_for > walk.bucket), walk.number + 1
        from walk
        where walk.bucket is not null and walk.number < 200
    )"
    };
}

/// The scheduled attempts of machine `$1` that follow a failed or lost one, with the error of that one: at most `$2`, among the first `$3`
/// that are due, with a limit (of the first 200 limits and values) and
/// without one. Uses the due index and those of priorities and limited attempts.
pub const RETRYING: Sql = same(concat!(
    with_buckets!(),
    "
    select d.instance_id, d.key, d.state, d.verb, p.error, p.finished_at, d.attempt, d.remaining_attempts, d.due_at
    from (
",
    each_priority!(
        "i.instance_id, i.key, i.state, i.call_id, i.attempt, i.verb, i.remaining_attempts, i.due_at",
        "i.machine = $1 and i.due_at is not null and i.waits_for is null",
        "$3"
    ),
    "
        union all
        select *
        from (
            select i.instance_id, i.key, i.state, i.call_id, i.attempt, i.verb, i.remaining_attempts, i.due_at
            from fsm_instances i
            where i.waits_for in (select w.bucket from walk w) and i.machine = $1 and i.due_at is not null
            order by i.due_at
            limit $3
        ) as x
    ) as d
    join fsm_async_calls p on p.call_id = d.call_id and p.attempt = d.attempt - 1
    where d.attempt > 1 and p.state in ('error', 'lost')
    order by d.due_at
    limit $2",
));

/// The scheduled attempts of machine `$1`, the earliest first, at most `$2`, each with the limit that it waits for, of the first 200 limits
/// and values. Uses the due index and
/// those of priorities and limited attempts.
pub const CALLS_TO_COME: Sql = same(concat!(
    with_buckets!(),
    "
    select *
    from (
",
    each_priority!(
        "i.key, i.verb, i.event, i.attempt, i.remaining_attempts, i.due_at, i.waits_for",
        "i.machine = $1 and i.due_at is not null and i.waits_for is null",
        "$2"
    ),
    "
        union all
        select *
        from (
            select i.key, i.verb, i.event, i.attempt, i.remaining_attempts, i.due_at, i.waits_for
            from fsm_instances i
            where i.waits_for in (select w.bucket from walk w) and i.machine = $1 and i.due_at is not null
            order by i.due_at
            limit $2
        ) as x
    ) as d
    order by d.due_at
    limit $2",
));

/// The timers of machine `$1`, the earliest first, at most `$2`. Uses the due index of timers.
pub const TIMERS_TO_COME: Sql = same(
    "
    select i.key, d.state, d.event, d.due_at
    from (
        select t.instance_id, t.state, t.event, t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
        order by t.due_at
        limit $2
    ) as d
    join fsm_instances i on i.instance_id = d.instance_id
    order by d.due_at",
);

/// All sessions, the oldest first. Reads the whole table, which has few rows.
pub const SESSIONS: Sql = same(
    "
    select w.session_id, w.host, w.pid, w.started_at, w.lease_until, w.unreported
    from fsm_workers w
    order by w.started_at, w.session_id",
);

/// The number of instances of machine `$1`, counted up to `$2`. Uses the unique index on machine and key.
pub const COUNT_UP_TO: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 limit $2) as counted",
);

/// The number of instances of machine `$1` in error, counted up to `$2`. Uses the index of instances in error.
pub const COUNT_IN_ERROR: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 and i.status = 'error' limit $2) as counted",
);

/// The number of attempts of machine `$1` that are due at `$2`, counted up to `$3`, and the due time of the first one, without those that
/// wait for a limit. Uses the due index and that of priorities.
pub const OVERDUE: Sql = same(concat!(
    "
    select count(*), min(counted.due_at)
    from (
        select x.due_at
        from (",
    each_priority!("i.due_at", "i.machine = $1 and i.due_at <= $2 and i.waits_for is null", "$3"),
    "
        ) as x
        order by x.due_at
        limit $3
    ) as counted",
));

/// The number of timers of machine `$1` that are due at `$2`, at most `$3`, and the time of the first one. Uses the due index of timers.
pub const OVERDUE_TIMERS: Sql = same(
    "
    select count(*), min(counted.due_at)
    from (
        select t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2
        order by t.due_at
        limit $3
    ) as counted",
);

/// The number of events for instances of machine `$1` among the first `$2` events of all inboxes. Uses the primary keys of the inbox and of
/// instances.
pub const COUNT_INBOX: Sql = same(
    "
    select count(*)
    from (select b.instance_id from fsm_inbox b limit $2) as waiting
    join fsm_instances i on i.instance_id = waiting.instance_id
    where i.machine = $1",
);

/// The ended attempts of the newest calls, at most `$1`. Uses the primary key: the ids of calls are in the order of their creation.
pub const NEWEST: Sql = same(
    "
    select c.machine, c.verb, c.state, c.created_at, c.scheduled_at, c.started_at, c.finished_at
    from fsm_async_calls c
    order by c.call_id desc, c.attempt desc
    limit $1",
);

/// The events that instances of machine `$1` rejected, of calls before `$2`, at most `$3`, the newest first, among the newest 20,000 of all
/// machines. Uses the index of rejected events. The machine is compared as an expression, so that SQLite does not start with all instances
/// of the machine.
pub const REJECTED: Sql = same(
    "
    select d.call_id, i.key, d.at, d.detail
    from (
        select *
        from fsm_history
        where kind = 'rejected' and call_id < $2
        order by call_id desc
        limit 20000
    ) as d
    join fsm_instances i on i.instance_id = d.instance_id
    where i.machine || '' = $1
    order by d.call_id desc
    limit $3",
);

/// The number of events that instances of machine `$1` rejected, counted up to `$2`, and the time of the last of them, among the newest
/// 20,000 of all machines. Uses the index of rejected events, as above.
pub const COUNT_REJECTED: Sql = same(
    "
    select count(*), max(counted.at)
    from (
        select d.at
        from (
            select *
            from fsm_history
            where kind = 'rejected'
            order by call_id desc
            limit 20000
        ) as d
        join fsm_instances i on i.instance_id = d.instance_id
        where i.machine || '' = $1
        order by d.call_id desc
        limit $2
    ) as counted",
);

/// The acts of operators before history entry `$1`, at most `$2`, the newest first, among the 20,000 entries before it. Uses the primary
/// key of the history.
pub const ACTS: Sql = same(
    "
    select h.history_id, i.machine, i.key, h.at, h.kind, h.detail, h.actor
    from (
        select *
        from fsm_history
        where history_id < $1
        order by history_id desc
        limit 20000
    ) as h
    join fsm_instances i on i.instance_id = h.instance_id
    where h.kind in ('retried', 'cancelled', 'paused', 'resumed', 'skipped', 'rescheduled')
    order by h.history_id desc
    limit $2",
);
