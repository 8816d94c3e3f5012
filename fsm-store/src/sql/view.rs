//! One instance with its calls, notes, inbox and timers, and the number of instances.

use super::statement::{Many, Sql, same};

/// The instance of machine `$1` with key `$2`. Uses the unique index on machine and key.
pub const FIND: Sql = same(concat!(
    "select ",
    instance!(),
    "
    from fsm_instances i
    where i.machine = $1 and i.key = $2"
));

/// All ended attempts of call `$1`, of call `$2`, and of the calls before them. Uses the primary key, from each call to the one before.
/// SQLite joins with `cross join`, which keeps the order of the tables.
pub const CALLS: Sql = Sql {
    sqlite: concat!(
        "with recursive walk (call_id) as (
            select $1
            union
            select $2
            where $2 is not null
            union
            select p.previous
            from walk
            cross join fsm_async_calls p on p.call_id = walk.call_id
            where p.previous is not null
        )
        select ",
        attempt!(),
        "
        from walk
        cross join fsm_async_calls c on c.call_id = walk.call_id"
    ),
    postgres: concat!(
        "with recursive walk (call_id) as (
            (select $1::uuid union select $2::uuid where $2::uuid is not null)
            union
            select p.previous
            from walk
            join fsm_async_calls p on p.call_id = walk.call_id
            where p.previous is not null
        )
        select ",
        attempt!(),
        "
        from walk
        join fsm_async_calls c on c.call_id = walk.call_id"
    ),
};

/// The notes of instance `$1`, oldest first. Uses the index by instance.
pub const NOTES: Sql = same(
    "
    select h.instance_id, h.at, h.kind, h.call_id, h.detail, h.actor
    from fsm_history h
    where h.instance_id = $1
    order by h.history_id",
);

/// The number of instances of machine `$1` by status and state. Uses the unique index on machine and key.
pub const COUNTS: Sql = same(
    "
    select i.status, i.state, count(*)
    from fsm_instances i
    where i.machine = $1
    group by i.status, i.state
    order by i.status, i.state",
);

/// The payload of call `$1`, which is the newest call of instance `$2` or has an ended attempt. Uses the primary keys.
pub const PAYLOAD: Sql = same(
    "
    select c.payload
    from fsm_async_calls c
    where c.call_id = $1 and c.attempt = 1
    union all
    select i.payload
    from fsm_instances i
    where i.instance_id = $2 and i.call_id = $1 and i.is_open and i.attempt = 1",
);

/// The events in the inbox of instance `$1`, in order, without payloads. Uses the primary key.
pub const WAITING: Sql = same(
    "
    select b.position, b.call_id, b.event, b.created_at
    from fsm_inbox b
    where b.instance_id = $1
    order by b.position",
);

/// The timers of instance `$1`, the earliest first, without payloads. Uses the index by instance.
pub const TIMERS_SET: Sql = same(
    "
    select t.timer_id, t.state, t.event, t.due_at, t.held
    from fsm_timers t
    where t.instance_id = $1
    order by t.due_at, t.timer_id",
);

/// The first 100 timers of each instance, the earliest first, without payloads and without wakes. Uses the index by instance.
pub const PENDING_TIMERS: Many = Many {
    columns: "instance_id uuid",
    sqlite: "
        select t.instance_id, t.timer_id, t.state, t.event, t.due_at, t.held
        from fsm_timers t
        where t.instance_id = w.instance_id and length(t.payload) > 0
        order by t.due_at, t.timer_id
        limit 100",
    postgres: "
        select t.instance_id, t.timer_id, t.state, t.event, t.due_at, t.held
        from w
        cross join lateral (
            select x.instance_id, x.timer_id, x.state, x.event, x.due_at, x.held
            from fsm_timers x
            where x.instance_id = w.instance_id and length(x.payload) > 0
            order by x.due_at, x.timer_id
            limit 100
        ) t
        order by t.due_at, t.timer_id",
};

/// The events in the inbox of each instance from position `head` to before `until`, without payloads. Uses the primary key.
pub const PENDING_EVENTS: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint",
    sqlite: "
        select b.instance_id, b.position, b.call_id, b.event, b.created_at
        from fsm_inbox b
        where b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        order by b.position",
    postgres: "
        select b.instance_id, b.position, b.call_id, b.event, b.created_at
        from w
        join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        order by b.instance_id, b.position",
};
