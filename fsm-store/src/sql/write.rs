//! The changes of one decision: the guards first, then the rows that depend on them.

use super::statement::{Many, many};

/// The columns of an attempt that has ended.
macro_rules! ended_columns {
    () => {
        "call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at, scheduled_at, \
         remaining_attempts, backoff, max_backoff, retry, first_at, snoozes, worker, started_at, finished_at, error, previous, priority"
    };
}

/// The values of these columns, from the row `i` of the instance and the end `w` of the attempt.
macro_rules! ended_values {
    () => {
        "i.call_id, i.attempt, i.instance_id, i.machine, i.verb, i.event, case when i.attempt = 1 then i.payload end, i.from_state, \
         i.to_state, w.becomes, i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.max_backoff, i.retry, i.first_at, \
         i.snoozes, i.worker, i.started_at, w.finished_at, w.error, i.previous, i.priority"
    };
}

/// The condition that the open attempt is in the expected state and that the session holds it.
macro_rules! is_held {
    () => {
        "i.is_open and i.call_id = w.call_id and i.attempt = w.attempt and i.attempt_state = w.expected
                and w.held_by is not distinct from i.worker"
    };
}

macro_rules! close {
    ($from:literal, $and:literal, $also:literal) => {
        concat!(
            "
            insert into fsm_async_calls (",
            ended_columns!(),
            ")
            select ",
            ended_values!(),
            "
            ",
            $from,
            " i.instance_id = w.instance_id ",
            $and,
            " ",
            is_held!(),
            $also
        )
    };
}

/// Copies each open attempt that is in the expected state and held by that session to the ended attempts. The instance's own row is updated
/// by another statement. Uses the primary key. PostgreSQL returns the copied attempts.
pub const CLOSE: Many = Many {
    columns: "instance_id uuid, call_id uuid, attempt bigint, expected text, held_by uuid, becomes text, finished_at bigint, error text",
    sqlite: close!("from fsm_instances i where", "and", ""),
    postgres: close!("from w join fsm_instances i on", "and", " returning call_id, attempt"),
};

/// As `AT_VERSION`, for instances whose open attempt ends: it must be in the expected state, and that session must hold it. Returns the columns of
/// the ended attempt. Uses the primary key.
#[cfg(feature = "postgres")]
pub const ENDING: Many = Many {
    columns: "instance_id uuid, row_version bigint, updated_at bigint, call_id uuid, attempt bigint, expected text same, held_by uuid same, \
              becomes text, finished_at bigint same, error text",
    sqlite: "",
    postgres: concat!(
        "
        select ",
        ended_values!(),
        "
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.row_version = w.row_version and i.updated_at = w.updated_at
            and ",
        is_held!(),
        "
        for update of i skip locked"
    ),
};

/// Appends the attempts of the part `ending` to those that have ended.
#[cfg(feature = "postgres")]
pub const APPEND_ENDED: &str = concat!("insert into fsm_async_calls (", ended_columns!(), ") select * from ending");

/// Sets the retry state of each open attempt that is still scheduled. Uses the primary key.
pub const RETRY_STATE: Many = many(
    "instance_id uuid, call_id uuid, attempt bigint, remaining bigint, backoff bigint, max_backoff bigint, retry text, first_at bigint",
    "
    update fsm_instances
    set remaining_attempts = w.remaining, backoff = w.backoff, max_backoff = w.max_backoff, retry = w.retry, first_at = w.first_at
    from w
    where fsm_instances.instance_id = w.instance_id and fsm_instances.call_id = w.call_id and fsm_instances.attempt = w.attempt
        and fsm_instances.attempt_state = 'scheduled'
    returning fsm_instances.call_id, fsm_instances.attempt",
);

/// Returns the timers that still exist. PostgreSQL locks them, because a verb may cancel a delayed send without locking its receiver. Uses
/// the primary key.
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

/// The columns of an open attempt, without its instance.
macro_rules! open_columns {
    () => {
        "call_id uuid, attempt bigint same, attempt_state text same, verb text, event text, payload bytea, from_state text, to_state text, \
         attempt_created_at bigint same, scheduled_at bigint same, due_at bigint same, remaining_attempts bigint, backoff bigint, \
         max_backoff bigint, retry text, first_at bigint same, worker uuid same, started_at bigint same, previous uuid, \
         snoozes bigint same, waits_for text same, runs_under text same, priority bigint same"
    };
}

/// The columns of an instance that change with a transition, without its call.
macro_rules! moved_columns {
    () => {
        "instance_id uuid, state text, version bigint, keeps_record boolean same, record bytea, error text same, inbox_head bigint, inbox_tail bigint, \
         updated_at bigint same, entered_at bigint, fair_by text"
    };
}

macro_rules! create {
    () => {
        "
        insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, error, inbox_head, inbox_tail,
            created_at, updated_at, entered_at, fair_by, is_open, call_id, attempt, attempt_state, verb, event, payload, from_state, to_state,
            attempt_created_at, scheduled_at, due_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, previous,
            snoozes, waits_for, runs_under, priority, parent, parent_group, parent_elsewhere, attachment, end_event, failure_event)
        select *
        from w
        where true
        on conflict (machine, key) do nothing"
    };
}

/// Creates each instance unless its key exists, with its open call if it has one. PostgreSQL returns the created instances.
pub const CREATE: Many = Many {
    columns: concat!(
        "instance_id uuid, machine text, key text, status text, state text, paused boolean, version bigint, record bytea, error text, \
         inbox_head bigint, inbox_tail bigint, created_at bigint, updated_at bigint, entered_at bigint, fair_by text, is_open boolean, ",
        open_columns!(),
        ", parent uuid, parent_group bigint, parent_elsewhere text, attachment text, end_event text, failure_event text"
    ),
    sqlite: create!(),
    postgres: concat!(create!(), " returning instance_id"),
};

macro_rules! save {
    ($($set:expr),* $(,)?) => {
        concat!(
            "
            update fsm_instances as i
            set state = w.state, version = w.version, record = case when w.keeps_record then i.record else w.record end, error = w.error,
                inbox_head = w.inbox_head, inbox_tail = w.inbox_tail, updated_at = w.updated_at, entered_at = w.entered_at, fair_by = w.fair_by, row_version = i.row_version + 1",
            $($set,)*
            "
            from w
            where i.instance_id = w.instance_id"
        )
    };
}

/// Ends the attempt. The payload is kept if the call may be run again.
macro_rules! ended {
    () => {
        ",
                is_open = false, attempt_state = w.attempt_state, finished_at = w.finished_at, attempt_error = w.attempt_error,
                payload = case when w.keeps_payload then i.payload end, due_at = null, waits_for = null, runs_under = null,
                progress = null, progress_at = null"
    };
}

/// Opens an attempt. The payload is kept if the attempt is of the same call.
macro_rules! opened {
    () => {
        ",
                is_open = true, call_id = w.call_id, attempt = w.attempt, attempt_state = w.attempt_state, verb = w.verb, event = w.event,
                payload = case when w.keeps_payload then i.payload else w.payload end, from_state = w.from_state, to_state = w.to_state,
                attempt_created_at = w.attempt_created_at, scheduled_at = w.scheduled_at, due_at = w.due_at,
                remaining_attempts = w.remaining_attempts, backoff = w.backoff, max_backoff = w.max_backoff, retry = w.retry,
                first_at = w.first_at, worker = w.worker, started_at = w.started_at, previous = w.previous, snoozes = w.snoozes,
                waits_for = w.waits_for, runs_under = w.runs_under, priority = w.priority, progress = null, progress_at = null,
                finished_at = null, attempt_error = null"
    };
}

/// The columns that decide in which partial indexes an instance is.
macro_rules! placed_columns {
    () => {
        ", status text, paused boolean same, family text same, family_group bigint same"
    };
}

macro_rules! placed {
    () => {
        ",
                status = w.status, paused = w.paused, family = w.family, family_group = w.family_group"
    };
}

/// Writes each instance without its call. A paused instance has no due time. Uses the primary key.
pub const SAVE: Many = many(
    concat!(moved_columns!(), placed_columns!()),
    save!(
        placed!(),
        ",
                due_at = case when i.attempt_state = 'scheduled' and not w.paused then i.scheduled_at end"
    ),
);

/// Writes each instance and ends its call. Uses the primary key.
pub const SAVE_ENDED: Many = many(
    concat!(
        moved_columns!(),
        ", attempt_state text, finished_at bigint same, attempt_error text, keeps_payload boolean",
        placed_columns!()
    ),
    save!(ended!(), placed!()),
);

/// Writes each instance and opens its call. Uses the primary key.
pub const SAVE_OPENED: Many =
    many(concat!(moved_columns!(), ", keeps_payload boolean, ", open_columns!(), placed_columns!()), save!(opened!(), placed!()));

/// As `SAVE`, for instances whose status, pause and family do not change. SQLite rewrites each index on a column that the statement sets, or whose
/// condition uses one, even if the value does not change; PostgreSQL compares the values. Uses the primary key.
pub const SAVE_IN_PLACE: Many = many(moved_columns!(), save!());

/// As `SAVE_ENDED`, for instances whose status, pause and family do not change. Uses the primary key.
pub const SAVE_ENDED_IN_PLACE: Many = many(
    concat!(moved_columns!(), ", attempt_state text, finished_at bigint same, attempt_error text, keeps_payload boolean"),
    save!(ended!()),
);

/// As `SAVE_OPENED`, for instances whose status, pause and family do not change. Uses the primary key.
pub const SAVE_OPENED_IN_PLACE: Many = many(concat!(moved_columns!(), ", keeps_payload boolean, ", open_columns!()), save!(opened!()));

/// Writes the instances to which an event is added. A process that may only send has the right to change no other columns. Uses the primary
/// key.
pub const SAVE_ADDED: Many = many(
    "instance_id uuid, inbox_tail bigint, updated_at bigint",
    "
    update fsm_instances as i
    set inbox_tail = w.inbox_tail, updated_at = w.updated_at, row_version = i.row_version + 1
    from w
    where i.instance_id = w.instance_id",
);

/// Adds events to inboxes.
pub const INBOX_PUT: Many = many(
    "instance_id uuid, position bigint, call_id uuid, event text, payload bytea, created_at bigint, outlook text, priority bigint",
    "
    insert into fsm_inbox (instance_id, position, call_id, event, payload, created_at, outlook, priority)
    select *
    from w",
);

/// Clears the forecasts of the events at these positions, because they are no longer valid. Uses the primary key.
pub const FORECAST_STALE: Many = many(
    "instance_id uuid, position bigint",
    "
    update fsm_inbox as b
    set outlook = null
    from w
    where b.instance_id = w.instance_id and b.position = w.position",
);

/// Deletes the events of each inbox from position `head` to before `until`, and returns their payloads. Uses the primary key.
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

/// The payloads of the instances' newest calls. Uses the primary key.
pub const PAYLOADS: Many = many(
    "instance_id uuid",
    "
    select w.instance_id, (select i.payload from fsm_instances i where i.instance_id = w.instance_id)
    from w",
);

/// The payloads of calls whose first attempts have ended. Uses the primary key.
pub const PAYLOADS_ENDED: Many = many(
    "call_id uuid",
    "
    select w.call_id, (select c.payload from fsm_async_calls c where c.call_id = w.call_id and c.attempt = 1)
    from w",
);

/// Deletes the timers. Uses the primary key.
pub const TIMER_DELETE: Many = many(
    "timer_id uuid",
    "
    delete from fsm_timers
    where timer_id in (select w.timer_id from w)",
);

/// Deletes the timers of the instances' states and their wakes. Delayed sends stay. Uses the index by instance.
pub const TIMER_CLEAR: Many = many(
    "instance_id uuid",
    "
    delete from fsm_timers
    where instance_id in (select w.instance_id from w) and (state is not null or length(payload) = 0)",
);

/// Holds the timers: they are not due until they are released. Uses the primary key.
pub const TIMER_HOLD: Many = many(
    "timer_id uuid",
    "
    update fsm_timers
    set held = true
    where timer_id in (select w.timer_id from w)",
);

/// Releases the held timers of the instances. Uses the index by instance.
pub const TIMER_RELEASE: Many = many(
    "instance_id uuid",
    "
    update fsm_timers
    set held = false
    where instance_id in (select w.instance_id from w) and held",
);

/// Adds timers.
pub const TIMER_SET: Many = many(
    "timer_id uuid, instance_id uuid, machine text, state text, event text, payload bytea, due_at bigint, priority bigint",
    "
    insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, priority, held)
    select w.*, false
    from w",
);

/// Adds notes to the history.
pub const NOTE: Many = many(
    "instance_id uuid, at bigint, kind text, call_id uuid, detail text, actor text",
    "
    insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
    select *
    from w",
);

/// Adds requests with dedup ids.
pub const REQUEST: Many = many(
    "instance_id uuid, dedup text, event text, digest bytea, call_id uuid, created_at bigint",
    "
    insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at)
    select *
    from w",
);

/// Writes the progress of each attempt that executes. Locked rows are left out: nobody waits for a value that only screens show. The row version
/// stays, because no decision depends on it. Uses the primary key. PostgreSQL returns the instances that are written.
pub const PROGRESS: Many = Many {
    columns: "instance_id uuid, call_id uuid, attempt bigint, progress bytea, progress_at bigint",
    sqlite: "
    update fsm_instances as i
    set progress = w.progress, progress_at = w.progress_at
    from w
    where i.instance_id = w.instance_id and i.call_id = w.call_id and i.attempt = w.attempt and i.attempt_state = 'executing'",
    postgres: ",
    free as materialized (
        select i.instance_id, w.progress, w.progress_at
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.call_id = w.call_id and i.attempt = w.attempt
            and i.attempt_state = 'executing'
        for update of i skip locked
    )
    update fsm_instances as i
    set progress = free.progress, progress_at = free.progress_at
    from free
    where i.instance_id = free.instance_id
    returning i.instance_id",
};
