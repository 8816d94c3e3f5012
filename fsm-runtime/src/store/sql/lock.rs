//! What stands there, read and locked before anything is decided.

use super::{Many, many};

/// The instance of each machine and key, locked in instance order, and whether it has a timer of its own. Rides the unique index on machine
/// and key, and the index of timers by instance.
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

/// The same without waiting: an instance that somebody else has locked has a row without its columns. The name comes last. Rides the unique index
/// on machine and key, and the index of timers by instance.
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

/// Each instance, locked in instance order. Rides the primary key.
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

/// Each attempt. Rides the primary key.
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

/// The last attempt of each call. Rides the primary key.
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

/// What waits for each instance from the position `head` up to `until`, by position. Rides the primary key.
pub const INBOX: Many = many(
    "instance_id uuid, head bigint, until bigint",
    "
    select b.instance_id, b.position, b.call_id, b.event, b.outlook
    from w
    join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
    order by b.instance_id, b.position",
);

/// The event types that wait for these instances, each once. Rides the primary key.
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
            select b.instance_id, b.position, b.call_id, b.event, b.outlook
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
            union all
            select b.instance_id, b.position, b.call_id, b.event, b.outlook
            from w ",
            $join,
            " fsm_inbox b on b.instance_id = w.instance_id and b.position = w.last and w.last >= w.until
            order by 1, 2"
        )
    };
}

/// The same, and what waits at the position `last`, unless it is before `until`. Rides the primary key; SQLite joins crosswise in the order
/// that is written.
pub const INBOX_ENDS: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint, last bigint",
    sqlite: inbox_ends!("cross join"),
    postgres: inbox_ends!("join"),
};

/// The requests that instances know by dedup id. Rides the primary key.
pub const REQUESTS: Many = many(
    "instance_id uuid, dedup text",
    "
    select r.instance_id, r.dedup, r.event, r.digest, r.call_id, r.created_at
    from w
    join fsm_requests r on r.instance_id = w.instance_id and r.dedup = w.dedup",
);

/// Where each call is already. A state's timer bears the name of a call too, and does not count. Rides three primary keys and the inbox's
/// index by call.
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
