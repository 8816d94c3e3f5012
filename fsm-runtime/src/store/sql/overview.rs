//! What one look at the engine shows: failing, to come, overdue, newest.

use super::{Sql, same};

/// The instances of machine `$1` in error before `$2`, at most `$3`, the newest first, with the verb that failed. Rides the index of
/// instances in error.
pub const FAILING: Sql = same(
    "
    select i.instance_id, i.key, i.state, c.verb, i.error, i.updated_at
    from fsm_instances i
    left join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error' and i.instance_id < $2
    order by i.instance_id desc
    limit $3",
);

/// The attempts of machine `$1` that follow a failed or lost one and have not ended, with that error: at most `$2`, among the first `$3` that
/// are scheduled and among those that execute. Rides the due index and the index of executing attempts.
pub const RETRYING: Sql = same(
    "
    select i.instance_id, i.key, i.state, l.verb, p.error, p.finished_at, p.state, l.attempt, l.remaining_attempts, l.scheduled_at, l.state
    from (
        select * from (
            select c.instance_id, c.call_id, c.attempt, c.verb, c.remaining_attempts, c.scheduled_at, c.state
            from fsm_async_calls c
            where c.machine = $1 and c.state = 'scheduled' and not c.held
            order by c.scheduled_at
            limit $3
        ) as d
        union all
        select c.instance_id, c.call_id, c.attempt, c.verb, c.remaining_attempts, c.scheduled_at, c.state
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'executing'
    ) as l
    join fsm_async_calls p on p.call_id = l.call_id and p.attempt = l.attempt - 1
    join fsm_instances i on i.instance_id = l.instance_id
    where l.attempt > 1 and p.state in ('error', 'lost')
    order by l.scheduled_at
    limit $2",
);

/// The attempts of machine `$1` that execute in a session without a row, or whose lease has ended at `$2`, at most `$3`. Rides the index of
/// executing attempts.
pub const LAPSED: Sql = same(
    "
    select i.key, c.verb, c.event, c.attempt, c.remaining_attempts, coalesce(w.lease_until, c.started_at)
    from fsm_async_calls c
    join fsm_instances i on i.instance_id = c.instance_id
    left join fsm_workers w on w.session_id = c.worker
    where c.machine = $1 and c.state = 'executing' and (w.session_id is null or w.lease_until <= $2)
    order by c.started_at
    limit $3",
);

/// The scheduled attempts of machine `$1`, the first due first, at most `$2`. Rides the due index.
pub const CALLS_TO_COME: Sql = same(
    "
    select i.key, d.verb, d.event, d.attempt, d.remaining_attempts, d.scheduled_at
    from (
        select c.instance_id, c.verb, c.event, c.attempt, c.remaining_attempts, c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held
        order by c.scheduled_at
        limit $2
    ) as d
    join fsm_instances i on i.instance_id = d.instance_id
    order by d.scheduled_at",
);

/// The timers of machine `$1`, the first due first, at most `$2`. Rides the due index of timers.
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

/// Every session, the one that began first first, with how many attempts it executes. Few rows, read whole; counts ride the index of
/// executing attempts.
pub const SESSIONS: Sql = same(
    "
    select w.session_id, w.host, w.pid, w.started_at, w.lease_until,
        (select count(*) from fsm_async_calls c where c.worker = w.session_id and c.state = 'executing')
    from fsm_workers w
    order by w.started_at, w.session_id",
);

/// How many instances machine `$1` has, as far as `$2`. Rides the unique index on machine and key.
pub const COUNT_UP_TO: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 limit $2) as counted",
);

/// How many instances of machine `$1` are in error, as far as `$2`. Rides the index of instances in error.
pub const COUNT_IN_ERROR: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_instances i where i.machine = $1 and i.status = 'error' limit $2) as counted",
);

/// How many attempts of machine `$1` are due at `$2`, as far as `$3`, and since when the first. Rides the due index.
pub const OVERDUE: Sql = same(
    "
    select count(*), min(counted.scheduled_at)
    from (
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.scheduled_at <= $2
        order by c.scheduled_at
        limit $3
    ) as counted",
);

/// How many of the first `$2` waiting events belong to instances of machine `$1`. Reads the inbox's primary key, and each instance by its own.
pub const COUNT_INBOX: Sql = same(
    "
    select count(*)
    from (select b.instance_id from fsm_inbox b limit $2) as waiting
    join fsm_instances i on i.instance_id = waiting.instance_id
    where i.machine = $1",
);

/// The attempts of the newest calls, at most `$1`. Rides the primary key, for ids of calls are in the order of their making.
pub const NEWEST: Sql = same(
    "
    select c.machine, c.state, c.created_at, c.scheduled_at, c.started_at, c.finished_at
    from fsm_async_calls c
    order by c.call_id desc, c.attempt desc
    limit $1",
);

/// The events that instances of machine `$1` were sent and did not take, of calls made before `$2`, at most `$3`, the newest first. Rides
/// the index of rejected events.
pub const REJECTED: Sql = same(
    "
    select h.call_id, i.key, h.at, h.detail
    from fsm_history h
    join fsm_instances i on i.instance_id = h.instance_id
    where h.kind = 'rejected' and h.call_id < $2 and i.machine = $1
    order by h.call_id desc
    limit $3",
);

/// How many events instances of machine `$1` were sent and did not take, as far as `$2`, and when the last was rejected of those counted.
/// Rides the index of rejected events.
pub const COUNT_REJECTED: Sql = same(
    "
    select count(*), max(counted.at)
    from (
        select h.at
        from fsm_history h
        join fsm_instances i on i.instance_id = h.instance_id
        where h.kind = 'rejected' and i.machine = $1
        order by h.call_id desc
        limit $2
    ) as counted",
);
