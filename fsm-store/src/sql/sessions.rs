//! Sessions, their leases, and the attempts that they execute.

use super::statement::{Sql, same};

/// Begins session `$1`: process `$3` on host `$2`, machine `$4`, boot `$5`, in the namespaces `$6`, started at `$7`. The session begins at
/// `$8` with the lease duration `$9`; its lease ends at `$10`, `$11` is the reachable time of that duration, and `$12` stands for the code that
/// it serves.
pub const SESSION_JOIN: Sql = same(
    "
    insert into fsm_workers (session_id, host, pid, machine_id, boot_id, namespaces, process_started, started_at, lease_us, lease_until,
        reachable_us, code)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
);

/// Sets the end of the lease of session `$1` to `$2`, unless it is already later: a delayed heartbeat may arrive after a newer one. `$3` is
/// the reachable time of its lease duration. Uses the primary key.
pub const SESSION_RENEW: Sql = same(
    "
    update fsm_workers
    set lease_until = case when lease_until > $2 then lease_until else $2 end, reachable_us = $3
    where session_id = $1
    returning session_id",
);

/// Records that a worker with the lease duration `$1` reached the database at `$2`. Adds the time since the last heartbeat of such a worker
/// if it is at most `$3`; after a longer gap it is unknown whether the database could be reached. Uses the primary key.
pub const REACHABLE: Sql = same(
    "
    insert into fsm_reachable_time as r (lease_us, reachable_us, seen_at)
    values ($1, 0, $2)
    on conflict (lease_us) do update
    set reachable_us = r.reachable_us + case when $2 > r.seen_at and $2 - r.seen_at <= $3 then $2 - r.seen_at else 0 end,
        seen_at = case when $2 > r.seen_at then $2 else r.seen_at end
    returning reachable_us",
);

/// All sessions but `$1`, with the reachable time of their lease durations. Reads the whole table, which has few rows.
pub const OTHER_SESSIONS: Sql = same(
    "
    select w.session_id, w.host, w.pid, w.machine_id, w.boot_id, w.namespaces, w.process_started, w.lease_until, w.lease_us,
        coalesce(r.reachable_us, 0) - w.reachable_us, w.code
    from fsm_workers w
    left join fsm_reachable_time r on r.lease_us = w.lease_us
    where w.session_id <> $1",
);

/// Deletes session `$1`, unless its lease was renewed and no longer ends at `$2`. Uses the primary key.
pub const SESSION_END: Sql = same(
    "
    delete from fsm_workers
    where session_id = $1 and lease_until = $2
    returning session_id",
);

/// Sets the number `$2` of unreported attempts of session `$1`. Uses the primary key.
pub const SESSION_UNREPORTED: Sql = same(
    "
    update fsm_workers
    set unreported = $2
    where session_id = $1",
);

/// Deletes session `$1`. Uses the primary key.
pub const SESSION_LEAVE: Sql = same(
    "
    delete from fsm_workers
    where session_id = $1",
);

/// The due time of the first scheduled attempt whose predecessor was lost. For tests: uses the index of due attempts, over all machines.
#[cfg(feature = "testing")]
pub const NEXT_AFTER_LOSS: Sql = same(
    "
    select i.due_at
    from fsm_instances i
    join fsm_async_calls l on l.call_id = i.call_id and l.attempt = i.attempt - 1
    where i.due_at is not null and l.state = 'lost'
    order by i.due_at
    limit 1",
);

/// Deletes the sessions whose lease has ended at `$1` and that have no log, because they execute nothing. Uses the log's primary key. On
/// PostgreSQL it skips locked rows, so that two sweepers with different orders do not wait for each other.
pub const SESSIONS_DELETE_EXPIRED: Sql = Sql {
    sqlite: "
        delete from fsm_workers
        where lease_until <= $1 and not exists (select 1 from fsm_session_log l where l.session_id = fsm_workers.session_id)
        returning session_id",
    postgres: "
        with dead as materialized (
            select w.session_id
            from fsm_workers w
            where w.lease_until <= $1 and not exists (select 1 from fsm_session_log l where l.session_id = w.session_id)
            for update of w skip locked
        )
        delete from fsm_workers
        using dead
        where fsm_workers.session_id = dead.session_id
        returning fsm_workers.session_id",
};

/// The earliest end of a lease of a session other than `$1`. Reads the whole table, which has few rows.
pub const NEXT_LAPSE: Sql = same(
    "
    select min(w.lease_until)
    from fsm_workers w
    where w.session_id <> $1",
);

/// Returns whether this role has the right to begin calls.
pub const MAY_BEGIN_CALLS: Sql =
    Sql { sqlite: "select true", postgres: "select has_column_privilege(current_user, 'fsm_instances', 'verb', 'update')" };
