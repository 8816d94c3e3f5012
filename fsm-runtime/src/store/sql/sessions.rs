//! Sessions, their leases, and what they execute.

use super::{Sql, same};

/// Session `$1` of process `$3` on host `$2` works since `$4` and is believed until `$5`.
pub const SESSION_JOIN: Sql = same(
    "
    insert into fsm_workers (session_id, host, pid, started_at, lease_until)
    values ($1, $2, $3, $4, $5)",
);

/// Session `$1` is believed until `$2`, or longer if it was already: a renewal that nobody waits for any more may come after a later one.
/// Rides the primary key.
pub const SESSION_RENEW: Sql = same(
    "
    update fsm_workers
    set lease_until = case when lease_until > $2 then lease_until else $2 end
    where session_id = $1
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
