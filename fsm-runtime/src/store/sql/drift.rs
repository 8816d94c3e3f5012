//! What rows need of the code, and the new names that they are given.

use super::{Many, Sql, many, same};

/// The states that instances of machine `$1` rest in which have not ended. Rides the unique index on machine and key.
pub const STATES_NEEDED: Sql = same(
    "
    select i.state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    where i.machine = $1 and i.status in ('running', 'error') and i.state is not null
    group by i.state",
);

/// The verbs of the open calls of machine `$1`, by retry policy. Rides the index of live attempts.
pub const VERBS_NEEDED: Sql = same(
    "
    select c.verb, c.retry, count(*), min(c.created_at)
    from fsm_async_calls c
    where c.machine = $1 and c.state in ('scheduled', 'executing')
    group by c.verb, c.retry",
);

/// The verbs of the exhausted calls of machine `$1`, by retry policy, and those that a catch verb caught. Rides the index of instances in error.
pub const VERBS_NEEDED_AGAIN: Sql = same(
    "
    select c.verb, c.retry, count(*), min(i.updated_at)
    from fsm_instances i
    join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error'
    group by c.verb, c.retry
    union all
    select c.to_state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
    where i.machine = $1 and i.status = 'error' and c.verb <> c.to_state and c.event like 'Caught<%'
    group by c.to_state",
);

/// The events that wait for their turn with instances of machine `$1`. Rides the unique index on machine and key.
pub const EVENTS_WAITING: Sql = same(
    "
    select b.event, cast(null as text), count(*), min(b.created_at)
    from fsm_instances i
    join fsm_inbox b on b.instance_id = i.instance_id
    where i.machine = $1 and i.status in ('running', 'error') and i.inbox_head < i.inbox_tail
    group by b.event",
);

/// The events that wait for their time with instances of machine `$1` which have not ended. Rides the due index of timers.
pub const EVENTS_DELAYED: Sql = same(
    "
    select t.event, cast(null as text), count(*), min(t.due_at)
    from fsm_timers t
    join fsm_instances i on i.instance_id = t.instance_id
    where t.machine = $1 and not t.held and t.state is null and length(t.payload) > 0 and i.status in ('running', 'error')
    group by t.event",
);

/// Instances of machine `$1` after `$2`, at most `$7`, of which something has a state of `$3`, a verb of `$4`, an event of `$5` or a policy
/// of `$6`. Rides the primary keys.
pub const BEARERS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2
            and (
                i.state in (select value from json_each($3))
                or exists (
                    select 1
                    from fsm_async_calls c
                    where c.call_id = i.call_id and c.attempt = i.attempt and (i.is_open or i.status = 'error')
                        and (
                            c.from_state in (select value from json_each($3))
                            or c.verb in (select value from json_each($4)) or c.to_state in (select value from json_each($4))
                            or c.event in (select value from json_each($5))
                            or c.retry in (select value from json_each($6))
                        )
                )
                or exists (select 1 from fsm_inbox b where b.instance_id = i.instance_id and b.event in (select value from json_each($5)))
                or exists (select 1 from fsm_requests r where r.instance_id = i.instance_id and r.event in (select value from json_each($5)))
                or exists (
                    select 1
                    from fsm_timers t
                    where t.instance_id = i.instance_id
                        and (t.state in (select value from json_each($3)) or t.event in (select value from json_each($5)))
                )
            )
        order by i.instance_id
        limit $7",
    postgres: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2
            and (
                i.state = any($3::text[])
                or exists (
                    select 1
                    from fsm_async_calls c
                    where c.call_id = i.call_id and c.attempt = i.attempt and (i.is_open or i.status = 'error')
                        and (
                            c.from_state = any($3::text[])
                            or c.verb = any($4::text[]) or c.to_state = any($4::text[])
                            or c.event = any($5::text[])
                            or c.retry = any($6::text[])
                        )
                )
                or exists (select 1 from fsm_inbox b where b.instance_id = i.instance_id and b.event = any($5::text[]))
                or exists (select 1 from fsm_requests r where r.instance_id = i.instance_id and r.event = any($5::text[]))
                or exists (
                    select 1
                    from fsm_timers t
                    where t.instance_id = i.instance_id and (t.state = any($3::text[]) or t.event = any($5::text[]))
                )
            )
        order by i.instance_id
        limit $7",
};

/// Instances of machine `$1` after `$2`, at most `$4`, that rest in a state of `$3` without a timer of that state. Rides the primary key, and
/// the index of timers by instance.
pub const TIMERLESS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.state in (select value from json_each($3)) and i.status in ('running', 'error')
            and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
    postgres: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.state = any($3::text[]) and i.status in ('running', 'error') and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
};

/// The timers of machine `$1` that are due at `$2`, at most `$4`, of the states `$3`. Rides the due index of timers.
pub const TIMERS_OVER: Sql = Sql {
    sqlite: "
        select t.timer_id
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state in (select value from json_each($3))
        order by t.due_at
        limit $4",
    postgres: "
        select t.timer_id
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state = any($3::text[])
        order by t.due_at
        limit $4",
};

/// The timers of the instances. Rides the index by instance.
pub const TIMERS_OF: Many = many(
    "instance_id uuid",
    concat!(
        "select ",
        timer!(),
        "
        from w
        join fsm_timers t on t.instance_id = w.instance_id"
    ),
);

/// The attempts run other verbs on other events, between other states, under policies with other names. Rides the primary key.
pub const RENAME_CALL: Many = many(
    "call_id uuid, attempt bigint, verb text, event text, from_state text, to_state text, retry text",
    "
    update fsm_async_calls as c
    set verb = w.verb, event = w.event, from_state = w.from_state, to_state = w.to_state, retry = w.retry
    from w
    where c.call_id = w.call_id and c.attempt = w.attempt",
);

/// What waits at these positions are other events. Rides the primary key.
pub const RENAME_WAITING: Many = many(
    "instance_id uuid, position bigint, event text",
    "
    update fsm_inbox as b
    set event = w.event
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// The instances' requests to be known again that came with the event `was` came with `becomes`. Rides the primary key.
pub const RENAME_REQUESTS: Many = many(
    "instance_id uuid, was text, becomes text",
    "
    update fsm_requests as r
    set event = w.becomes
    from w
    where r.instance_id = w.instance_id and r.event = w.was",
);

/// The timers belong to other states, if any, and deliver other events. Rides the primary key.
pub const RENAME_TIMER: Many = many(
    "timer_id uuid, state text, event text, payload bytea",
    "
    update fsm_timers as t
    set state = w.state, event = w.event, payload = w.payload
    from w
    where t.timer_id = w.timer_id",
);
