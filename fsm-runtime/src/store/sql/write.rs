//! What one decision writes: the guards first, then what follows them.

use super::{Many, many};

/// Ends each attempt that is in the expected state and held by that session. Rides the primary key. PostgreSQL answers with those.
pub const CLOSE: Many = Many {
    columns: "call_id uuid, attempt bigint, expected text, held_by uuid, becomes text, finished_at bigint, error text",
    sqlite: "
        update fsm_async_calls as c
        set state = w.becomes, finished_at = w.finished_at, error = w.error
        from w
        where c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected and c.worker is not distinct from w.held_by",
    postgres: "
        update fsm_async_calls as c
        set state = w.becomes, finished_at = w.finished_at, error = w.error
        from w
        where c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected and c.worker is not distinct from w.held_by
        returning c.call_id, c.attempt",
};

/// Gives each attempt that is still scheduled another retry state. Rides the primary key.
pub const RETRY_STATE: Many = many(
    "call_id uuid, attempt bigint, remaining bigint, backoff bigint, max_backoff bigint, retry text, first_at bigint",
    "
    update fsm_async_calls
    set remaining_attempts = w.remaining, backoff = w.backoff, max_backoff = w.max_backoff, retry = w.retry, first_at = w.first_at
    from w
    where fsm_async_calls.call_id = w.call_id and fsm_async_calls.attempt = w.attempt and fsm_async_calls.state = 'scheduled'
    returning fsm_async_calls.call_id, fsm_async_calls.attempt",
);

/// Which timers are still there. PostgreSQL locks them: a verb may cancel a delayed send without the lock of its receiver. Rides the primary
/// key.
pub const TIMER_EXISTS: Many = Many {
    columns: "timer_id uuid",
    sqlite: "
        select t.timer_id
        from w
        join fsm_timers t on t.timer_id = w.timer_id",
    postgres: "
        select t.timer_id
        from w
        join fsm_timers t on t.timer_id = w.timer_id
        for update of t",
};

/// The columns of a new instance.
pub(super) const INSTANCE: &str = "instance_id uuid, machine text, key text, status text, state text, paused boolean, version bigint, record bytea, \
    call_id uuid, attempt bigint, is_open boolean, error text, inbox_head bigint, inbox_tail bigint, created_at bigint, updated_at bigint, \
    entered_at bigint";

macro_rules! create {
    () => {
        "
        insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error,
            inbox_head, inbox_tail, created_at, updated_at, entered_at)
        select *
        from w
        where true
        on conflict (machine, key) do nothing"
    };
}

/// Creates each instance unless another has its key. PostgreSQL answers with those.
pub const CREATE: Many = Many { columns: INSTANCE, sqlite: create!(), postgres: concat!(create!(), " returning instance_id") };

/// Writes each instance but for what never changes. Rides the primary key.
pub const SAVE: Many = many(
    "instance_id uuid, state text, version bigint, record bytea, call_id uuid, attempt bigint, is_open boolean, error text, \
     inbox_head bigint, inbox_tail bigint, updated_at bigint, entered_at bigint, status text, paused boolean",
    "
    update fsm_instances as i
    set state = w.state, version = w.version, record = w.record, call_id = w.call_id, attempt = w.attempt, is_open = w.is_open,
        error = w.error, inbox_head = w.inbox_head, inbox_tail = w.inbox_tail, updated_at = w.updated_at,
        entered_at = w.entered_at, status = w.status, paused = w.paused
    from w
    where i.instance_id = w.instance_id",
);

/// The same for instances whose status stays, and whether they are paused. SQLite writes anew each index that has a column which is named
/// or depends on one, whether its value changes or not; PostgreSQL compares them. Rides the primary key.
pub const SAVE_IN_PLACE: Many = many(
    "instance_id uuid, state text, version bigint, record bytea, call_id uuid, attempt bigint, is_open boolean, error text, \
     inbox_head bigint, inbox_tail bigint, updated_at bigint, entered_at bigint",
    "
    update fsm_instances as i
    set state = w.state, version = w.version, record = w.record, call_id = w.call_id, attempt = w.attempt, is_open = w.is_open,
        error = w.error, inbox_head = w.inbox_head, inbox_tail = w.inbox_tail, updated_at = w.updated_at,
        entered_at = w.entered_at
    from w
    where i.instance_id = w.instance_id",
);

/// The same for instances to which an event is added. A process that may only send has the right to no other column. Rides the primary key.
pub const SAVE_ADDED: Many = many(
    "instance_id uuid, inbox_tail bigint, updated_at bigint",
    "
    update fsm_instances as i
    set inbox_tail = w.inbox_tail, updated_at = w.updated_at
    from w
    where i.instance_id = w.instance_id",
);

/// Events that begin to wait.
pub const INBOX_PUT: Many = many(
    "instance_id uuid, position bigint, call_id uuid, event text, payload bytea, created_at bigint, outlook text",
    "
    insert into fsm_inbox (instance_id, position, call_id, event, payload, created_at, outlook)
    select *
    from w",
);

/// What was foreseen at these positions does not hold any more. Rides the primary key.
pub const FORECAST_STALE: Many = many(
    "instance_id uuid, position bigint",
    "
    update fsm_inbox as b
    set outlook = null
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// What waited for each instance from the position `head` up to `until` is gone. Rides the primary key.
pub const INBOX_TAKE: Many = Many {
    columns: "instance_id uuid, head bigint, until bigint",
    sqlite: "
        delete from fsm_inbox
        where (instance_id, position) in (
            select b.instance_id, b.position
            from w
            cross join fsm_inbox b on b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        )
        returning instance_id, position, payload",
    postgres: "
        delete from fsm_inbox as b
        using w
        where b.instance_id = w.instance_id and b.position >= w.head and b.position < w.until
        returning b.instance_id, b.position, b.payload",
};

/// The payload of each call. Rides the primary key.
pub const PAYLOADS: Many = many(
    "call_id uuid",
    "
    select w.call_id, (select c.payload from fsm_async_calls c where c.call_id = w.call_id and c.attempt = 1)
    from w",
);

/// New attempts.
pub const OPEN: Many = many(
    "call_id uuid, attempt bigint, instance_id uuid, machine text, verb text, event text, payload bytea, from_state text, to_state text, \
     state text, held boolean, created_at bigint, scheduled_at bigint, remaining_attempts bigint, backoff bigint, max_backoff bigint, \
     retry text, first_at bigint, worker uuid, started_at bigint, finished_at bigint, error text, previous uuid, \
     snoozes bigint",
    "
    insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, held,
        created_at, scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, error,
        previous, snoozes)
    select *
    from w",
);

/// Each live attempt is held, or not. Rides the primary key.
pub const HOLD: Many = many(
    "call_id uuid, attempt bigint, held boolean",
    "
    update fsm_async_calls as c
    set held = w.held
    from w
    where c.call_id = w.call_id and c.attempt = w.attempt and c.state in ('scheduled', 'executing')",
);

/// The timers are gone. Rides the primary key.
pub const TIMER_DELETE: Many = many(
    "timer_id uuid",
    "
    delete from fsm_timers
    where timer_id in (select w.timer_id from w)",
);

/// The timers of the instances' states are gone, and their wakes; their delayed sends stay. Rides the index by instance.
pub const TIMER_CLEAR: Many = many(
    "instance_id uuid",
    "
    delete from fsm_timers
    where instance_id in (select w.instance_id from w) and (state is not null or length(payload) = 0)",
);

/// The timers are not due until they are released. Rides the primary key.
pub const TIMER_HOLD: Many = many(
    "timer_id uuid",
    "
    update fsm_timers
    set held = true
    where timer_id in (select w.timer_id from w)",
);

/// The held timers of the instances are released. Rides the index by instance.
pub const TIMER_RELEASE: Many = many(
    "instance_id uuid",
    "
    update fsm_timers
    set held = false
    where instance_id in (select w.instance_id from w) and held",
);

/// New timers.
pub const TIMER_SET: Many = many(
    "timer_id uuid, instance_id uuid, machine text, state text, event text, payload bytea, due_at bigint",
    "
    insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
    select w.*, false
    from w",
);

/// Notes in the history.
pub const NOTE: Many = many(
    "instance_id uuid, at bigint, kind text, call_id uuid, detail text, actor text",
    "
    insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
    select *
    from w",
);

/// Requests to be known again.
pub const REQUEST: Many = many(
    "instance_id uuid, dedup text, event text, digest bytea, call_id uuid, created_at bigint",
    "
    insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at)
    select *
    from w",
);
