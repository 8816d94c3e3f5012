//! The rows that a decision needs, read and locked before it is made.

use super::statement::{Many, many};

/// Locks and returns the instance of each machine and key, in the order of instances, with whether it has a timer of its own. Uses the
/// unique index on machine and key, and the index of timers by instance.
pub const LOCK_BY_KEY: Many = Many {
    columns: "machine text, key text",
    sqlite: concat!(
        "select ",
        instance!(),
        has_timer!(),
        "
        from fsm_instances i
        where i.machine = w.machine and i.key = w.key"
    ),
    postgres: concat!(
        "select ",
        instance!(),
        has_timer!(),
        "
        from w
        join fsm_instances i on i.machine = w.machine and i.key = w.key
        order by i.instance_id
        for update of i"
    ),
};

/// The same without waiting for locks. An instance that another transaction has locked has a row whose columns are null. The machine and
/// the key come last. Uses the unique index on machine and key, and the index of timers by instance.
pub const LOCK_IF_FREE: Many = Many {
    columns: "machine text, key text",
    sqlite: "-- SQLite has no locks of rows",
    postgres: concat!(
        ", free as materialized (
            select f.*
            from w
            join fsm_instances f on f.machine = w.machine and f.key = w.key
            order by f.instance_id
            for update of f skip locked
        )
        select ",
        instance!(),
        has_timer!(),
        ", w.machine, w.key
        from w
        left join free i on i.machine = w.machine and i.key = w.key
        where exists (select 1 from fsm_instances there where there.machine = w.machine and there.key = w.key)"
    ),
};

/// Locks and returns each instance, in the order of instances. Uses the primary key.
pub const LOCK_BY_ID: Many = Many {
    columns: "instance_id uuid",
    sqlite: concat!(
        "select ",
        instance!(),
        "
        from fsm_instances i
        where i.instance_id = w.instance_id"
    ),
    postgres: concat!(
        "select ",
        instance!(),
        "
        from w
        join fsm_instances i on i.instance_id = w.instance_id
        order by i.instance_id
        for update of i"
    ),
};

/// Ended attempts. Uses the primary key.
pub const ATTEMPTS: Many = many(
    "call_id uuid, attempt bigint",
    concat!(
        "select ",
        attempt!(),
        "
        from w
        join fsm_async_calls c on c.call_id = w.call_id and c.attempt = w.attempt"
    ),
);

/// The last ended attempt of each call. Uses the primary key.
pub const LAST_ATTEMPTS: Many = many(
    "call_id uuid",
    concat!(
        "select ",
        attempt!(),
        "
        from w
        join fsm_async_calls c on c.call_id = w.call_id
            and c.attempt = (select max(l.attempt) from fsm_async_calls l where l.call_id = w.call_id)"
    ),
);

/// The events in the inbox of each instance from position `head` to before `until`, by position. Uses the primary key.
pub const INBOX: Many = many(
    "instance_id uuid, head bigint, until bigint",
    "
    select b.instance_id, b.position, b.call_id, b.event, b.outlook, b.priority
    from w
    join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
    order by b.instance_id, b.position",
);

/// The distinct types of the events in the inboxes of these instances. Uses the primary key.
pub const WAITING_EVENTS: Many = many(
    "instance_id uuid",
    "
    select distinct b.instance_id, b.event
    from w
    join fsm_inbox b on b.instance_id = w.instance_id",
);

macro_rules! inbox_ends {
    ($join:literal) => {
        concat!(
            "
            select b.instance_id, b.position, b.call_id, b.event, b.outlook, b.priority
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
            union all
            select b.instance_id, b.position, b.call_id, b.event, b.outlook, b.priority
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position = w.last and w.last >= w.until
            order by 1, 2"
        )
    };
}

/// The same, and the event at position `last` unless it is before `until`. Uses the primary key. SQLite joins with `cross join`, which
/// keeps the order of the tables.
pub const INBOX_ENDS: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint, last bigint",
    sqlite: inbox_ends!("cross join"),
    postgres: inbox_ends!("join"),
};

/// The requests of instances with these dedup ids. Uses the primary key.
pub const REQUESTS: Many = many(
    "instance_id uuid, dedup text",
    "
    select r.instance_id, r.dedup, r.event, r.digest, r.call_id, r.created_at
    from w
    join fsm_requests r on r.instance_id = w.instance_id and r.dedup = w.dedup",
);

/// The places where the calls of repeated sends are already. A state's timer also has the id of a call, and does not count. Uses the
/// primary keys of calls and of timers, the inbox's index by call, and the index of rejected events.
pub const KNOWN: Many = many(
    "call_id uuid",
    "
    select k.call_id, k.instance_id, 'call'
    from (
        select w.call_id, (select c.instance_id from fsm_async_calls c where c.call_id = w.call_id and c.attempt = 1) as instance_id
        from w
    ) k
    where k.instance_id is not null
    union all
    select b.call_id, b.instance_id, 'inbox'
    from w
    join fsm_inbox b on b.call_id = w.call_id
    union all
    select t.timer_id, t.instance_id, 'timer'
    from w
    join fsm_timers t on t.timer_id = w.call_id and t.state is null
    union all
    select h.call_id, h.instance_id, 'rejected'
    from w
    join fsm_history h on h.call_id = w.call_id and h.kind = 'rejected'",
);

/// The instance of each machine and key, with whether it has a timer of its own. Uses the unique index on machine and key, and the index of
/// timers by instance.
pub const READ_BY_KEY: Many = Many {
    columns: "machine text, key text",
    sqlite: "",
    postgres: concat!(
        "select ",
        instance!(),
        has_timer!(),
        "
        from w
        join fsm_instances i on i.machine = w.machine and i.key = w.key"
    ),
};
