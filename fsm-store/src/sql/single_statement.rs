//! The guards of a small batch that PostgreSQL writes in one statement. It is decided without locks.

use super::statement::Many;

/// Locks each instance that still has this row version and this time of its last change. The time is compared because a server that lost
/// commits, in a crash or by a failover, uses their row versions again. A row that another transaction has locked counts as changed, so that
/// the rest of the batch does not wait for it. Uses the primary key.
pub const AT_VERSION: Many = Many {
    columns: "instance_id uuid, row_version bigint, updated_at bigint",
    sqlite: "",
    postgres: "
        select i.instance_id
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.row_version = w.row_version and i.updated_at = w.updated_at
        for update of i skip locked",
};

/// As `AT_VERSION`, for instances whose open attempt ends: it must be in the expected state, and that session must hold it. Returns what
/// `APPEND_ENDED` inserts. Uses the primary key.
pub const ENDING: Many = Many {
    columns: "instance_id uuid, row_version bigint, updated_at bigint, call_id uuid, attempt bigint, expected text same, held_by uuid same, \
              becomes text, finished_at bigint same, error text",
    sqlite: "",
    postgres: "
        select i.call_id, i.attempt, i.instance_id, i.machine, i.verb, i.event, case when i.attempt = 1 then i.payload end, i.from_state,
            i.to_state, w.becomes, i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.max_backoff, i.retry,
            i.first_at, i.snoozes, i.worker, i.started_at, w.finished_at, w.error, i.previous, i.priority
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.row_version = w.row_version and i.updated_at = w.updated_at
            and i.is_open and i.call_id = w.call_id and i.attempt = w.attempt and i.attempt_state = w.expected
            and w.held_by is not distinct from i.worker
        for update of i skip locked",
};

/// Appends the attempts of the part `ending` to those that have ended.
pub const APPEND_ENDED: &str = "
    insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at,
        scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, snoozes, worker, started_at, finished_at, error, previous,
        priority)
    select *
    from ending";

/// The condition that the instance of a row passed its guard. In this form PostgreSQL uses a hash table with any planner settings.
pub const IS_GOOD: &str = "(u.instance_id in (select good.instance_id from good)) is true";

/// The answer of the single statement in a user's transaction: whether it wrote.
pub const WROTE_IN_ONE: &str = "select good from outcome";

/// The answer of the single statement: the instances that it wrote.
pub const WROTE_SINGLE_STATEMENT: &str = "select good.instance_id from good";
