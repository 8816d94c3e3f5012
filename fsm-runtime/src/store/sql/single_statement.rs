//! What a small batch is read and guarded by when PostgreSQL writes it in one statement. Nothing is locked while it is decided.

use super::Many;
use super::write::INSTANCE;

/// The instance of each machine and key, whether it has a timer of its own, and the stamp of the commit that wrote it last. Rides the unique
/// index on machine and key, and the index of timers by instance.
pub const READ_BY_KEY: Many = Many {
    columns: "machine text, key text",
    sqlite: "",
    postgres: concat!(
        "select ",
        instance!(),
        has_timer!(),
        ", i.xmin::text::bigint
        from w
        join fsm_instances i on i.machine = w.machine and i.key = w.key"
    ),
};

/// Locks each instance that is as that commit left it at that moment. One that somebody else has locked counts as changed: whoever waits here
/// would keep the others of its batch waiting. Rides the primary key.
pub const AT_VERSION: Many = Many {
    columns: "instance_id uuid, xmin bigint, updated_at bigint",
    sqlite: "",
    postgres: "
        select i.instance_id
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.xmin::text::bigint = w.xmin and i.updated_at = w.updated_at
        for update of i skip locked",
};

/// Locks each attempt that is in the expected state and held by that session. Rides the primary key.
pub const AS_HELD: Many = Many {
    columns: "call_id uuid, attempt bigint, expected text, held_by uuid",
    sqlite: "",
    postgres: "
        select c.call_id
        from w
        join fsm_async_calls c on c.call_id = w.call_id and c.attempt = w.attempt and c.state = w.expected
            and c.worker is not distinct from w.held_by
        for update of c skip locked",
};

/// Creates each instance. An error when another has its key.
pub const CREATE_ALL: Many = Many {
    columns: INSTANCE,
    sqlite: "",
    postgres: "
        insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error,
            inbox_head, inbox_tail, created_at, updated_at, entered_at)
        select *
        from w",
};

/// The answer of the one statement in a transaction of the caller's: whether it wrote.
pub const WROTE_IN_ONE: &str = "select good from verdict";

/// The answer of the one statement: whether it wrote, and the stamp of its own commit.
pub const WROTE_SINGLE_STATEMENT: &str = "select good, pg_current_xact_id()::xid::text::bigint from verdict";
