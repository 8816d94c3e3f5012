//! Sessions, their leases, and what they execute.

use super::{Sql, same};

/// Session `$1` begins: process `$3` on host `$2`, machine `$4`, boot `$5`, in the namespaces `$6`, started at `$7`. It works since `$8` with
/// the lease duration `$9`, which ends at `$10`, and `$11` is the reachable time of that duration.
pub const SESSION_JOIN: Sql = same(
    "
    insert into fsm_workers (session_id, host, pid, machine_id, boot_id, namespaces, process_started, started_at, lease_us, lease_until,
        reachable_us)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
);

/// The lease of session `$1` ends at `$2`, or later if it did before: a heartbeat that nobody waits for any more may arrive after a later
/// one. `$3` is the reachable time of its lease duration. Rides the primary key.
pub const SESSION_RENEW: Sql = same(
    "
    update fsm_workers
    set lease_until = case when lease_until > $2 then lease_until else $2 end, reachable_us = $3
    where session_id = $1
    returning session_id",
);

/// A worker with the lease duration `$1` reaches the database at `$2`. The time since the last heartbeat of such a worker is added if it is
/// at most `$3`; otherwise nobody knows whether the database could be reached. Rides the primary key.
pub const REACHABLE: Sql = same(
    "
    insert into fsm_reachable_time as r (lease_us, reachable_us, seen_at)
    values ($1, 0, $2)
    on conflict (lease_us) do update
    set reachable_us = r.reachable_us + case when $2 > r.seen_at and $2 - r.seen_at <= $3 then $2 - r.seen_at else 0 end,
        seen_at = case when $2 > r.seen_at then $2 else r.seen_at end
    returning reachable_us",
);

/// Every session but `$1`, with the reachable time of its lease duration. Few rows, read whole.
pub const OTHER_SESSIONS: Sql = same(
    "
    select w.session_id, w.host, w.pid, w.machine_id, w.boot_id, w.namespaces, w.process_started, w.lease_until, w.lease_us,
        coalesce(r.reachable_us, 0) - w.reachable_us
    from fsm_workers w
    left join fsm_reachable_time r on r.lease_us = w.lease_us
    where w.session_id <> $1",
);

/// Session `$1` is over, unless it has renewed its lease since that ended at `$2`. Rides the primary key.
pub const SESSION_END: Sql = same(
    "
    delete from fsm_workers
    where session_id = $1 and lease_until = $2
    returning session_id",
);

/// Session `$1` is over. Rides the primary key.
pub const SESSION_LEAVE: Sql = same(
    "
    delete from fsm_workers
    where session_id = $1",
);

/// Executing attempts of machines `$3` whose session has no row or whose lease has ended at `$1`, at most `$2`, but for those of the
/// calls `$4`. Rides the index of executing attempts. PostgreSQL leaves out whose instance is locked: a process that hangs in a transaction is not waited for.
pub const ORPHANS: Sql = Sql {
    sqlite: concat!(
        "select i.machine, i.key, ",
        attempt!(),
        "
        from fsm_async_calls c
        join fsm_instances i on i.instance_id = c.instance_id
        left join fsm_workers w on w.session_id = c.worker
        where c.state = 'executing' and (w.session_id is null or w.lease_until <= $1) and c.machine in (select value from json_each($3))
            and c.call_id not in (select unhex(value) from json_each($4))
        limit $2"
    ),
    postgres: concat!(
        "select i.machine, i.key, ",
        attempt!(),
        "
        from fsm_async_calls c
        join fsm_instances i on i.instance_id = c.instance_id
        left join fsm_workers w on w.session_id = c.worker
        where c.state = 'executing' and (w.session_id is null or w.lease_until <= $1) and c.machine = any($3::text[])
            and c.call_id <> all($4::text[]::uuid[])
        limit $2
        for update of i skip locked"
    ),
};

/// What session `$1` executes. Rides the index of executing attempts.
pub const SESSION_HOLDS: Sql = same(concat!(
    "select i.machine, i.key, ",
    attempt!(),
    "
    from fsm_async_calls c
    join fsm_instances i on i.instance_id = c.instance_id
    where c.worker = $1 and c.state = 'executing'"
));

/// When the first scheduled attempt is due whose predecessor was lost. For tests: rides the index of due attempts, over all machines.
#[cfg(feature = "testing")]
pub const NEXT_AFTER_LOSS: Sql = same(
    "
    select c.scheduled_at
    from fsm_async_calls c
    join fsm_async_calls l on l.call_id = c.call_id and l.attempt = c.attempt - 1
    where c.state = 'scheduled' and not c.held and l.state = 'lost'
    order by c.scheduled_at
    limit 1",
);

/// Sessions whose lease has ended at `$1` and that execute nothing are gone. Rides the index of executing attempts. Two sweepers may come to
/// the same sessions in different orders: in PostgreSQL neither waits for the other.
pub const SESSION_BURY: Sql = Sql {
    sqlite: "
        delete from fsm_workers
        where lease_until <= $1
            and not exists (select 1 from fsm_async_calls c where c.worker = fsm_workers.session_id and c.state = 'executing')
        returning session_id",
    postgres: "
        with dead as materialized (
            select w.session_id
            from fsm_workers w
            where w.lease_until <= $1
                and not exists (select 1 from fsm_async_calls c where c.worker = w.session_id and c.state = 'executing')
            for update of w skip locked
        )
        delete from fsm_workers
        using dead
        where fsm_workers.session_id = dead.session_id
        returning fsm_workers.session_id",
};

/// The earliest end of a lease of a session other than `$1`. Few rows, read whole.
pub const NEXT_LAPSE: Sql = same(
    "
    select min(w.lease_until)
    from fsm_workers w
    where w.session_id <> $1",
);

/// Whether this role may begin calls.
pub const MAY_BEGIN_CALLS: Sql =
    Sql { sqlite: "select true", postgres: "select has_table_privilege(current_user, 'fsm_async_calls', 'insert')" };
