//! The past, found and deleted.

use super::{Many, Sql, many, same};

/// Instances of machine `$1` after `$2` and before `$3`, at most `$5`, that ended before `$4` and for which no delayed event waits. Rides the
/// index of ended instances.
pub const ENDED: Sql = Sql {
    sqlite: "
        select i.instance_id
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled') and i.updated_at < $4
            and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)
        order by i.instance_id
        limit $5",
    postgres: "
        select i.instance_id
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled') and i.updated_at < $4
            and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)
        order by i.instance_id
        limit $5
        for update of i skip locked",
};

/// The calls of the instances, from each call to the one before. SQLite joins crosswise in the order that is written.
macro_rules! calls_of {
    ($delete:literal) => {
        Many {
            columns: "instance_id uuid",
            sqlite: concat!(
                $delete,
                " where call_id in (
                with recursive walk (call_id) as (
                    select i.call_id
                    from w
                    cross join fsm_instances i on i.instance_id = w.instance_id
                    union
                    select p.previous
                    from walk
                    cross join fsm_async_calls p on p.call_id = walk.call_id
                    where p.previous is not null
                )
                select walk.call_id
                from walk
            )"
            ),
            postgres: concat!(
                $delete,
                " where call_id in (
                with recursive walk (call_id) as (
                    select i.call_id
                    from w
                    join fsm_instances i on i.instance_id = w.instance_id
                    union
                    select p.previous
                    from walk
                    join fsm_async_calls p on p.call_id = walk.call_id
                    where p.previous is not null
                )
                select walk.call_id
                from walk
            )"
            ),
        }
    };
}

/// What the calls of the instances remember is gone. Rides the primary keys.
pub const PRUNE_ONCE: Many = calls_of!("delete from fsm_once");

/// The calls of the instances are gone. Rides the primary keys.
pub const PRUNE_CALLS: Many = calls_of!("delete from fsm_async_calls");

/// What waited for the instances is gone. Rides the primary key.
pub const PRUNE_INBOX: Many = many("instance_id uuid", "delete from fsm_inbox where instance_id in (select w.instance_id from w)");

/// No request to the instances is known. Rides the primary key.
pub const PRUNE_REQUESTS: Many = many("instance_id uuid", "delete from fsm_requests where instance_id in (select w.instance_id from w)");

/// The notes of the instances are gone. Rides the index by instance.
pub const PRUNE_HISTORY: Many = many("instance_id uuid", "delete from fsm_history where instance_id in (select w.instance_id from w)");

/// The instances are gone. Rides the primary key.
pub const PRUNE_INSTANCES: Many = many("instance_id uuid", "delete from fsm_instances where instance_id in (select w.instance_id from w)");

/// Every attempt of calls before `$3`, from call `$1` and attempt `$2` on and without that one, at most `$4`. Rides the primary key.
pub const OLD_ATTEMPTS: Sql = same(concat!(
    "select ",
    attempt!(),
    "
    from fsm_async_calls c
    where (c.call_id, c.attempt) > ($1, $2) and c.call_id < $3
    order by c.call_id, c.attempt
    limit $4"
));

/// The attempts are gone. Rides the primary key.
pub const PRUNE_ATTEMPTS: Many = Many {
    columns: "call_id uuid, attempt bigint",
    sqlite: "delete from fsm_async_calls where (call_id, attempt) in (select w.call_id, w.attempt from w)",
    postgres: "delete from fsm_async_calls as c using w where c.call_id = w.call_id and c.attempt = w.attempt",
};

/// What the calls remember is gone. Rides the primary key.
pub const PRUNE_ONCE_OF: Many = many("call_id uuid", "delete from fsm_once where call_id in (select w.call_id from w)");

/// The calls are gone, with all their attempts. Rides the primary key.
pub const PRUNE_CALLS_OF: Many = many("call_id uuid", "delete from fsm_async_calls where call_id in (select w.call_id from w)");

/// So many more of the instances' transitions have no attempts any more. Rides the primary key.
pub const PRUNED: Many = many(
    "instance_id uuid, transitions bigint",
    "
    update fsm_instances as i
    set pruned = i.pruned + w.transitions
    from w
    where i.instance_id = w.instance_id",
);

/// The last of the next `$2` notes after note `$1`. Rides the primary key.
pub const NOTES_UNTIL: Sql = same(
    "
    select max(n.history_id)
    from (select h.history_id from fsm_history h where h.history_id > $1 order by h.history_id limit $2) as n",
);

/// The notes after `$1` up to `$2` are gone that were made before `$3`, of live instances of machine `$4`, about no call that is still
/// there. Rides the primary keys.
pub const PRUNE_NOTES: Sql = same(
    "
    delete from fsm_history
    where history_id in (
        select h.history_id
        from fsm_history h
        join fsm_instances i on i.instance_id = h.instance_id
        where h.history_id > $1 and h.history_id <= $2 and h.at < $3 and i.machine = $4 and i.status in ('running', 'error')
            and not exists (select 1 from fsm_async_calls c where c.call_id = h.call_id and c.attempt = 1)
    )
    returning history_id",
);

/// The request that is `$3` places after instance `$1` and dedup id `$2`. Rides the primary key.
pub const REQUESTS_UNTIL: Sql = same(
    "
    select r.instance_id, r.dedup
    from fsm_requests r
    where (r.instance_id, r.dedup) > ($1, $2)
    order by r.instance_id, r.dedup
    limit 1
    offset $3",
);

/// The requests after instance `$1` and dedup id `$2`, up to `$3` and `$4`, are forgotten that came before `$5`, to live instances of machine
/// `$6`, whose call neither waits nor is still there. Rides the primary keys and the inbox's index by call.
pub const PRUNE_REQUESTS_OLD: Sql = same(
    "
    delete from fsm_requests
    where (instance_id, dedup) in (
        select r.instance_id, r.dedup
        from fsm_requests r
        join fsm_instances i on i.instance_id = r.instance_id
        where (r.instance_id, r.dedup) > ($1, $2) and (r.instance_id, r.dedup) <= ($3, $4) and r.created_at < $5
            and i.machine = $6 and i.status in ('running', 'error')
            and not exists (select 1 from fsm_async_calls c where c.call_id = r.call_id and c.attempt = 1)
            and not exists (select 1 from fsm_inbox b where b.call_id = r.call_id)
            and not exists (select 1 from fsm_timers t where t.timer_id = r.call_id)
    )
    returning dedup",
);

/// What calls before `$2` of instances of machine `$1` remember since before `$3` is gone, at most `$4` of it, where the instance rests: its
/// calls are closed, and none will be run again. Rides the primary keys.
pub const ONCE_CLOSED: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (
        select o.call_id, o.name
        from fsm_once o
        join fsm_async_calls c on c.call_id = o.call_id and c.attempt = 1
        join fsm_instances i on i.instance_id = c.instance_id
        where o.call_id < $2 and o.created_at < $3 and i.machine = $1 and not i.is_open and i.status <> 'error'
        order by o.call_id
        limit $4
    )
    returning call_id",
);
