//! Drift: the names that rows need from the code, and the statements that rename them.

use super::statement::{Many, Sql, many, same};

/// The id of the instance at position `$2`, from 0, of all instances after `$1`: the end of the range that one statement reads. Uses the
/// primary key.
pub const WINDOW: Sql = same(
    "
    select i.instance_id
    from fsm_instances i
    where i.instance_id > $1
    order by i.instance_id
    limit 1 offset $2",
);

macro_rules! states_needed {
    ($status:literal) => {
        same(concat!(
            "
    select i.state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    where i.machine = $1 and i.status = '",
            $status,
            "' and i.instance_id > $2 and i.instance_id <= $3 and i.state is not null
    group by i.state"
        ))
    };
}

/// The states of running instances of machine `$1` after `$2` and up to `$3`. Uses the index of running instances.
pub const STATES_NEEDED: Sql = states_needed!("running");

/// The states of instances of machine `$1` in error after `$2` and up to `$3`. Uses the index of instances in error.
pub const STATES_NEEDED_IN_ERROR: Sql = states_needed!("error");

/// The verbs of the open calls of running instances of machine `$1` after `$2` and up to `$3`, by retry policy. Uses the index of running
/// instances.
pub const VERBS_NEEDED: Sql = same(
    "
    select i.verb, i.retry, count(*), min(i.attempt_created_at)
    from fsm_instances i
    where i.machine = $1 and i.status = 'running' and i.instance_id > $2 and i.instance_id <= $3 and i.is_open
    group by i.verb, i.retry",
);

/// The verbs of the exhausted calls of machine `$1`, by retry policy, and the verbs whose calls a catch verb caught. Uses the index of
/// instances in error.
pub const VERBS_NEEDED_AGAIN: Sql = same(
    "
    select i.verb, i.retry, count(*), min(i.updated_at)
    from fsm_instances i
    where i.machine = $1 and i.status = 'error' and i.verb is not null
    group by i.verb, i.retry
    union all
    select i.to_state, cast(null as text), count(*), min(i.updated_at)
    from fsm_instances i
    where i.machine = $1 and i.status = 'error' and i.verb <> i.to_state and i.event like 'Caught<%'
    group by i.to_state",
);

macro_rules! events_waiting {
    ($status:literal) => {
        same(concat!(
            "
    select b.event, cast(null as text), count(*), min(b.created_at)
    from fsm_instances i
    join fsm_inbox b on b.instance_id = i.instance_id
    where i.machine = $1 and i.status = '",
            $status,
            "' and i.instance_id > $2 and i.instance_id <= $3 and i.inbox_head < i.inbox_tail
    group by b.event"
        ))
    };
}

/// The events in the inboxes of running instances of machine `$1` after `$2` and up to `$3`. Uses the index of running instances.
pub const EVENTS_WAITING: Sql = events_waiting!("running");

/// The events in the inboxes of instances of machine `$1` in error after `$2` and up to `$3`. Uses the index of instances in error.
pub const EVENTS_WAITING_IN_ERROR: Sql = events_waiting!("error");

/// The delayed events of instances of machine `$1` that have not ended. Uses the due index of timers.
pub const EVENTS_DELAYED: Sql = same(
    "
    select t.event, cast(null as text), count(*), min(t.due_at)
    from fsm_timers t
    join fsm_instances i on i.instance_id = t.instance_id
    where t.machine = $1 and not t.held and t.state is null and length(t.payload) > 0 and i.status in ('running', 'error')
    group by t.event",
);

/// The instances of machine `$1` after `$2` and up to `$8`, at most `$7`, that use a state of `$3`, a verb of `$4`, an event of `$5` or a
/// policy of `$6`. Uses the primary keys and the index of timers by instance.
pub const BEARERS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id <= $8
            and (
                i.state in (select value from json_each($3))
                or (i.is_open or i.status = 'error')
                and (
                    i.from_state in (select value from json_each($3))
                    or i.verb in (select value from json_each($4)) or i.to_state in (select value from json_each($4))
                    or i.event in (select value from json_each($5))
                    or i.retry in (select value from json_each($6))
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
        where i.machine = $1 and i.instance_id > $2 and i.instance_id <= $8
            and (
                i.state = any($3::text[])
                or (i.is_open or i.status = 'error')
                and (
                    i.from_state = any($3::text[])
                    or i.verb = any($4::text[]) or i.to_state = any($4::text[])
                    or i.event = any($5::text[])
                    or i.retry = any($6::text[])
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

/// The instances of machine `$1` after `$2` and up to `$5`, at most `$4`, that have no open call and are in a state of `$3` without a timer
/// of that state. Uses the primary key, and the index of timers by instance.
pub const TIMERLESS: Sql = Sql {
    sqlite: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id <= $5 and i.state in (select value from json_each($3)) and i.status in ('running', 'error')
            and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
    postgres: "
        select i.instance_id, i.key
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id <= $5 and i.state = any($3::text[]) and i.status in ('running', 'error') and not i.is_open
            and not exists (
                select 1 from fsm_timers t where t.instance_id = i.instance_id and t.state = i.state and t.event = 'Timeout'
            )
        order by i.instance_id
        limit $4",
};

/// The timers of machine `$1` that are due at `$2`, at most `$4`, of the states `$3`, ordered by time and id, after the time `$5` and the
/// id `$6`. Uses the due index of timers.
pub const TIMERS_OVER: Sql = Sql {
    sqlite: "
        select t.timer_id, t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state in (select value from json_each($3))
            and t.due_at >= $5 and (t.due_at > $5 or t.timer_id > $6)
        order by t.due_at, t.timer_id
        limit $4",
    postgres: "
        select t.timer_id, t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held and t.due_at <= $2 and t.event = 'Timeout' and t.state = any($3::text[])
            and t.due_at >= $5 and (t.due_at > $5 or t.timer_id > $6)
        order by t.due_at, t.timer_id
        limit $4",
};

/// The timers of the instances. Uses the index by instance.
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

/// Sets the names in the instances' newest attempts: verb, event, states and retry policy. Uses the primary key.
pub const RENAME_CALL: Many = many(
    "instance_id uuid, call_id uuid, attempt bigint, verb text, event text, from_state text, to_state text, retry text",
    "
    update fsm_instances as i
    set verb = w.verb, event = w.event, from_state = w.from_state, to_state = w.to_state, retry = w.retry
    from w
    where i.instance_id = w.instance_id and i.call_id = w.call_id and i.attempt = w.attempt",
);

/// Sets the same names in an ended attempt whose call a catch verb caught, because that call may be run again. Uses the primary key.
pub const RENAME_CAUGHT: Many = many(
    "instance_id uuid, call_id uuid, attempt bigint, verb text, event text, from_state text, to_state text, retry text",
    "
    update fsm_async_calls as c
    set verb = w.verb, event = w.event, from_state = w.from_state, to_state = w.to_state, retry = w.retry
    from w
    where c.instance_id = w.instance_id and c.call_id = w.call_id and c.attempt = w.attempt",
);

/// Sets the names of the events that wait at these positions. Uses the primary key.
pub const RENAME_WAITING: Many = many(
    "instance_id uuid, position bigint, event text",
    "
    update fsm_inbox as b
    set event = w.event
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// Renames the event `was` to `becomes` in the dedup records of the instances. Uses the primary key.
pub const RENAME_REQUESTS: Many = many(
    "instance_id uuid, was text, becomes text",
    "
    update fsm_requests as r
    set event = w.becomes
    from w
    where r.instance_id = w.instance_id and r.event = w.was",
);

/// Sets the states and events of the timers. Uses the primary key.
pub const RENAME_TIMER: Many = many(
    "timer_id uuid, state text, event text, payload bytea",
    "
    update fsm_timers as t
    set state = w.state, event = w.event, payload = w.payload
    from w
    where t.timer_id = w.timer_id",
);
