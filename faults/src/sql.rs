//! The statements of the harness: the verbs' own statements, and the reads of the checker. The texts are the same for both databases.

/// Creates the verbs' own table. It has no unique key, so that the checker can count duplicate rows.
pub const MAKE_BOOKS: &str = "create table if not exists fault_books (call_id text not null, cents bigint not null)";

/// Inserts a verb's own row: $1 call, $2 cents.
pub const BOOK: &str = "insert into fault_books (call_id, cents) values ($1, $2)";

/// All rows of the verbs' own table.
pub const BOOKS: &str = "select call_id, cents from fault_books";

/// The number of directories of partitions in this database: 0 or 1.
pub const DIRECTORIES: &str = "select count(*) from pg_class where oid = to_regclass('fsm_partitions')";

/// The schemas of all partitions, with the URLs of their databases, by number.
pub const PARTITIONS: &str = "select schema, url from fsm_partitions order by partition";

/// Makes a session use the tables of the schema $1.
pub const USE_SCHEMA: &str = "select set_config('search_path', 'public, ' || quote_ident($1), false)";

/// All instances.
pub const INSTANCES: &str = "
    select instance_id, machine, key, status, state, version, record, error, inbox_tail - inbox_head
    from fsm_instances";

/// All attempts, ordered by call.
pub const ATTEMPTS: &str = "
    select call_id, attempt, instance_id, verb, state, worker, payload, finished_at
    from fsm_attempts
    order by call_id, attempt";

/// The limits of which calls hold a place, or for which they wait, and those of permits.
pub const HELD: &str = "
    select coalesce(runs_under, waits_for)
    from fsm_instances
    where runs_under is not null or waits_for is not null
    union all
    select bucket
    from fsm_limit_permits";

/// The number of boxes that were parked under limits.
pub const PARKED: &str = "select count(*) from fsm_instances where machine = 'crane' and state = 'parked'";

/// The history notes of all rejected events.
pub const REJECTED: &str = "select instance_id, call_id, detail from fsm_history where kind = 'rejected'";

/// The number of committed transitions.
pub const TRANSITIONS: &str = "select cast(coalesce(sum(version), 0) as bigint) from fsm_instances";

/// The number of rows that show unfinished work: live attempts, timers, events that wait for room, for other partitions or for running
/// instances, children in other partitions that have not reported their end, and permits.
pub const UNSETTLED: &str = "
    select
        (select count(*) from fsm_instances where is_open)
        + (select count(*) from fsm_timers)
        + (select count(*) from fsm_outbox)
        + (select count(*) from fsm_partition_outbox)
        + (select count(*) from fsm_remote_children where status = 'running')
        + (select count(*) from fsm_limit_permits)
        + (select count(*) from fsm_instances where machine in ('basket', 'item') and status = 'running')
        + (select count(*) from fsm_inbox b join fsm_instances i on i.instance_id = b.instance_id where i.status = 'running')";

/// The number of calls and waiting events that existed at $1 and are still open.
pub const OPEN_SINCE: &str = "
    select
        (select count(*) from fsm_instances where is_open and first_at < $1)
        + (select count(*) from fsm_inbox b join fsm_instances i on i.instance_id = b.instance_id
            where i.status = 'running' and b.created_at < $1)";

/// Pauses all schedules.
pub const PAUSE_SCHEDULES: &str = "update fsm_schedules set paused = not paused where not paused";

/// The number of moments that the schedule has sent.
pub const MOMENTS: &str = "select count(*) from fsm_instances where machine = 'bell'";

/// Some of the live attempts.
pub const SOME_LIVE_ATTEMPTS: &str = "
    select machine || ' ' || verb || ' attempt ' || cast(attempt as text) || ' ' || attempt_state
    from fsm_instances
    where is_open
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

/// Terminates all of the engine's sessions.
pub const TERMINATE_ALL: &str = "
    select count(pg_terminate_backend(a.pid))
    from (
        select pid from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and application_name = 'durable-fsm'
        offset 0
    ) a";

/// Locks some live accounts with their open calls, and returns their keys. Skips locked rows. Tills are not locked: the accounts that send to
/// them would wait too, and their keys are not known here.
pub const LOCK_SOME: &str = "
    select i.key
    from fsm_instances i
    where i.machine = 'account' and i.status = 'running' and i.is_open
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

/// The number of events that wait for room in an inbox.
pub const IN_OUTBOX: &str = "select count(*) from fsm_outbox";

/// The number of calls that an event interrupted.
pub const INTERRUPTED: &str = "select count(*) from fsm_history where kind = 'interrupted'";

/// The number of baskets that were called after their last item.
pub const ASSEMBLED: &str = "select count(*) from fsm_instances where machine = 'basket' and status = 'completed'";

/// The number of items that are in another partition than their basket.
pub const ITEMS_ELSEWHERE: &str = "select count(*) from fsm_remote_children where machine = 'item'";

/// The number of items that were cancelled with their basket.
pub const ITEMS_CANCELLED: &str = "select count(*) from fsm_instances where machine = 'item' and status = 'cancelled'";

/// The number of attempts that were lost with their process.
pub const LOST: &str = "select count(*) from fsm_async_calls where state = 'lost'";

/// The number of late reports.
pub const LATE: &str = "select count(*) from fsm_history where kind = 'late'";

/// The number of successful attempts of the verb that blocks its thread.
pub const STALLED: &str = "select count(*) from fsm_async_calls where verb = 'stalled' and state = 'success'";

/// The number of connections that the pooler holds to this database.
pub const SESSIONS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'checks' and pid <> pg_backend_pid()";

/// The number of instances that ended long ago.
pub const FILLED: i64 = 100;

/// Insert the receipt $1, which ended long ago: its row, and its call, whose first $2 - 1 attempts failed.
pub const FILL_ENDED_SQLITE: [&str; 2] = [
    "insert into fsm_instances (instance_id, machine, key, status, state, paused, version, call_id, attempt, is_open, inbox_head, inbox_tail,
        created_at, updated_at, attempt_state, verb, event, to_state, attempt_created_at, scheduled_at, backoff, retry, first_at, snoozes,
        worker, started_at, finished_at)
    values (unhex(printf('%08x00007000800000000000000a', $1)), 'receipt', 'old-' || $1, 'completed', 'issued', 0, 1,
        unhex(printf('%08x00007000800000000000000b', $1)), $2, 0, 0, 0, 1, 1, 'success', 'issued', 'Issue', 'issued', 1, 1, 0,
        '{\"max_attempts\":null,\"min_us\":0,\"max_us\":0,\"backoff\":1.0,\"jitter\":0.0}', 1, 0, unhex('00000000000070008000000000000001'), 1, 1)",
    "with recursive series (n) as (select 1 union all select n + 1 from series where n < $2)
    insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, to_state, state, created_at, scheduled_at,
        backoff, retry, first_at, worker, started_at, finished_at, error)
    select unhex(printf('%08x00007000800000000000000b', $1)), n, unhex(printf('%08x00007000800000000000000a', $1)), 'receipt', 'issued', 'Issue',
        case when n = 1 then cast('{}' as blob) end, 'issued', case when n < $2 then 'error' else 'success' end, 1, 1, 0,
        '{\"max_attempts\":null,\"min_us\":0,\"max_us\":0,\"backoff\":1.0,\"jitter\":0.0}', 1, unhex('00000000000070008000000000000001'), 1, 1,
        case when n < $2 then 'it failed long ago' end
    from series",
];

/// The same on PostgreSQL.
pub const FILL_ENDED_POSTGRES: [&str; 2] = [
    "insert into fsm_instances (instance_id, machine, key, status, state, paused, version, call_id, attempt, is_open, inbox_head, inbox_tail,
        created_at, updated_at, attempt_state, verb, event, to_state, attempt_created_at, scheduled_at, backoff, retry, first_at, snoozes,
        worker, started_at, finished_at)
    select (lpad(to_hex($1), 8, '0') || '-0000-7000-8000-00000000000a')::uuid, 'receipt', 'old-' || $1, 'completed', 'issued', false, 1,
        (lpad(to_hex($1), 8, '0') || '-0000-7000-8000-00000000000b')::uuid, $2, false, 0, 0, 1, 1, 'success', 'issued', 'Issue', 'issued',
        1, 1, 0, '{\"max_attempts\":null,\"min_us\":0,\"max_us\":0,\"backoff\":1.0,\"jitter\":0.0}', 1, 0, '00000000-0000-7000-8000-000000000001'::uuid,
        1, 1",
    "insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, to_state, state, created_at, scheduled_at,
        backoff, retry, first_at, worker, started_at, finished_at, error)
    select (lpad(to_hex($1), 8, '0') || '-0000-7000-8000-00000000000b')::uuid, n,
        (lpad(to_hex($1), 8, '0') || '-0000-7000-8000-00000000000a')::uuid, 'receipt', 'issued', 'Issue',
        case when n = 1 then convert_to('{}', 'UTF8') end, 'issued', case when n < $2 then 'error' else 'success' end, 1, 1, 0,
        '{\"max_attempts\":null,\"min_us\":0,\"max_us\":0,\"backoff\":1.0,\"jitter\":0.0}', 1,
        '00000000-0000-7000-8000-000000000001', 1, 1, case when n < $2 then 'it failed long ago' end
    from generate_series(1, $2) as series (n)",
];

/// The number of these instances that are left.
pub const ENDED_LEFT: &str = "select count(*) from fsm_instances where machine = 'receipt' and key like 'old-%'";

/// Begins a transaction that keeps the snapshot of its first read.
pub const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read";

/// Begins a transaction that keeps the snapshot of its first read, on SQLite.
pub const SNAPSHOT_SQLITE: &str = "begin";
