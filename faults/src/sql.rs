//! The statements of the harness: the verbs' own statements, and the reads of the checker. The texts are the same for both databases.

/// Creates the verbs' own table. It has no unique key, so that the checker can count duplicate rows.
pub const MAKE_BOOKS: &str = "create table if not exists fault_books (call_id text not null, cents bigint not null)";

/// Inserts a verb's own row: $1 call, $2 cents.
pub const BOOK: &str = "insert into fault_books (call_id, cents) values ($1, $2)";

/// All rows of the verbs' own table.
pub const BOOKS: &str = "select call_id, cents from fault_books";

/// All instances.
pub const INSTANCES: &str = "
    select instance_id, machine, key, status, state, version, record, error, inbox_tail - inbox_head
    from fsm_instances";

/// All attempts, ordered by call.
pub const ATTEMPTS: &str = "
    select call_id, attempt, instance_id, verb, state, worker, payload
    from fsm_async_calls
    order by call_id, attempt";

/// The history notes of all rejected events.
pub const REJECTED: &str = "select instance_id, call_id, detail from fsm_history where kind = 'rejected'";

/// The number of committed transitions.
pub const TRANSITIONS: &str = "select cast(coalesce(sum(version), 0) as bigint) from fsm_instances";

/// The number of items that prevent rest: live attempts, timers, and events that wait for running instances.
pub const UNREST: &str = "
    select
        (select count(*) from fsm_async_calls where state in ('scheduled', 'executing'))
        + (select count(*) from fsm_timers)
        + (select count(*) from fsm_inbox b join fsm_instances i on i.instance_id = b.instance_id where i.status = 'running')";

/// Some of the live attempts.
pub const RESTLESS: &str = "
    select machine || ' ' || verb || ' attempt ' || cast(attempt as text) || ' ' || state
    from fsm_async_calls
    where state in ('scheduled', 'executing')
    limit 10";

/// Cancels up to three of the engine's running statements.
pub const CANCEL: &str = "
    select count(pg_cancel_backend(a.pid))
    from (
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and application_name = 'durable-fsm'
        order by random()
        limit 3
    ) a";

/// Terminates one of the engine's sessions.
pub const TERMINATE: &str = "
    select count(pg_terminate_backend(a.pid))
    from (
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and application_name = 'durable-fsm'
        order by random()
        limit 1
    ) a";

/// Locks some live accounts with their attempts, and returns their keys. Skips locked rows. Tills are not locked: the accounts that send to
/// them would wait too, and their keys are not known here.
pub const LOCK_SOME: &str = "
    select i.key
    from fsm_instances i
    join fsm_async_calls c on c.instance_id = i.instance_id
    where i.machine = 'account' and i.status = 'running' and c.state in ('scheduled', 'executing')
    limit 8
    for update skip locked";

/// Begins a transaction that holds row locks.
pub const LOCK_BEGIN: &str = "begin";

/// Begins a transaction that holds SQLite's write lock.
pub const LOCK_FILE: &str = "begin immediate";

/// Ends either transaction.
pub const LOCK_END: &str = "rollback";

/// The number of deadlocks that the server detected in this database.
pub const DEADLOCKS: &str = "select deadlocks from pg_stat_database where datname = current_database()";

/// The number of late reports.
pub const LATE: &str = "select count(*) from fsm_history where kind = 'late'";

/// The number of successful attempts of the verb that blocks its thread.
pub const STALLED: &str = "select count(*) from fsm_async_calls where verb = 'stalled' and state = 'success'";

/// The number of connections that the pooler holds to this database.
pub const SESSIONS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'patrol' and pid <> pg_backend_pid()";

/// Begins a transaction that keeps the snapshot of its first read.
pub const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read";

/// Begins a transaction that keeps the snapshot of its first read, on SQLite.
pub const SNAPSHOT_SQLITE: &str = "begin";
