//! Every statement of the harness: what verbs write of their own, and what the checker reads. The same text for both databases.

/// The verbs' own table. No key keeps a row from standing there twice: the checker counts.
pub const MAKE_BOOKS: &str = "create table if not exists fault_books (call_id text not null, cents bigint not null)";

/// A verb's own row: $1 call, $2 cents.
pub const BOOK: &str = "insert into fault_books (call_id, cents) values ($1, $2)";

/// Every row of the verbs' own.
pub const BOOKS: &str = "select call_id, cents from fault_books";

/// Every instance.
pub const INSTANCES: &str = "
    select instance_id, machine, key, status, state, version, record, error, inbox_tail - inbox_head
    from fsm_instances";

/// Every attempt, oldest calls first.
pub const ATTEMPTS: &str = "
    select call_id, attempt, instance_id, verb, state, worker, payload
    from fsm_async_calls
    order by call_id, attempt";

/// Every note of a rejected event.
pub const REJECTED: &str = "select instance_id, call_id, detail from fsm_history where kind = 'rejected'";

/// How many transitions were committed.
pub const TRANSITIONS: &str = "select cast(coalesce(sum(version), 0) as bigint) from fsm_instances";

/// How many things are still to happen: live attempts, timers, and events that wait for an instance that lives.
pub const UNREST: &str = "
    select
        (select count(*) from fsm_async_calls where state in ('scheduled', 'executing'))
        + (select count(*) from fsm_timers)
        + (select count(*) from fsm_inbox b join fsm_instances i on i.instance_id = b.instance_id where i.status = 'running')";

/// Some of what is still to happen.
pub const RESTLESS: &str = "
    select machine || ' ' || verb || ' attempt ' || cast(attempt as text) || ' ' || state
    from fsm_async_calls
    where state in ('scheduled', 'executing')
    limit 10";

/// Cancels some of what runs, but nothing of the harness.
pub const CANCEL: &str = "
    select count(pg_cancel_backend(a.pid))
    from (
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and application_name = 'durable-fsm'
        order by random()
        limit 3
    ) a";

/// Ends a session of the engine's.
pub const TERMINATE: &str = "
    select count(pg_terminate_backend(a.pid))
    from (
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and application_name = 'durable-fsm'
        order by random()
        limit 1
    ) a";

/// Locks some accounts that live, with their attempts, and gives their keys. Waits for nobody. No till is locked: every account that sends to
/// it would wait for it too, and is not told by its key.
pub const LOCK_SOME: &str = "
    select i.key
    from fsm_instances i
    join fsm_async_calls c on c.instance_id = i.instance_id
    where i.machine = 'account' and i.status = 'running' and c.state in ('scheduled', 'executing')
    limit 8
    for update skip locked";

/// Begins what locks rows, or a whole SQLite file, for as long as it likes.
pub const LOCK_BEGIN: &str = "begin";

/// The same for a SQLite file, to which nobody else writes meanwhile.
pub const LOCK_FILE: &str = "begin immediate";

/// Ends either.
pub const LOCK_END: &str = "rollback";

/// Deadlocks that the server saw in this database.
pub const DEADLOCKS: &str = "select deadlocks from pg_stat_database where datname = current_database()";

/// How many reports came too late.
pub const LATE: &str = "select count(*) from fsm_history where kind = 'late'";

/// How many times a verb blocked its thread, and ended.
pub const STALLED: &str = "select count(*) from fsm_async_calls where verb = 'stalled' and state = 'success'";

/// How many connections the pooler holds to this database.
pub const SESSIONS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'patrol' and pid <> pg_backend_pid()";

/// Begins what sees the database as it is at its first look, for as long as it likes.
pub const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read";

/// The same.
pub const SNAPSHOT_SQLITE: &str = "begin";
