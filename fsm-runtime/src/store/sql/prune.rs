//! The past, found and deleted.

use super::{Many, Sql, many, same};

/// The next `$5` ended instances of machine `$1` after `$2` and before `$3`: the newest call, whether it ended before `$4` and no delayed event
/// waits for it, and then how many notes, requests and waiting events it has, of each at most `$6`. Rides the index of ended instances, the
/// primary keys, and the indexes by instance.
pub const ENDED: Sql = same(
    "
    select e.instance_id, e.call_id, e.is_over,
        case
            when e.is_over then (select count(*) from (select 1 from fsm_history h where h.instance_id = e.instance_id limit $6) as n)
                + (select count(*) from (select 1 from fsm_requests r where r.instance_id = e.instance_id limit $6) as n)
                + (select count(*) from (select 1 from fsm_inbox b where b.instance_id = e.instance_id limit $6) as n)
            else 0
        end
    from (
        select i.instance_id, i.call_id,
            i.updated_at < $4 and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id) as is_over
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled')
        order by i.instance_id
        limit $5
    ) as e
    order by e.instance_id",
);

macro_rules! still_over {
    () => {
        "
        select i.instance_id
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.status in ('completed', 'cancelled') and i.updated_at < w.cutoff
        where not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)"
    };
}

/// Those of the instances that still are to be deleted, locked; those that somebody else has locked are left out. Rides the primary key, and
/// the index of timers by instance.
pub const STILL_OVER: Many = Many {
    columns: "instance_id uuid, cutoff bigint",
    sqlite: still_over!(),
    postgres: concat!(still_over!(), " order by i.instance_id for update of i skip locked"),
};

macro_rules! calls_back {
    ($before:literal, $after:literal) => {
        concat!(
            "
            select b.start, b.call_id, (select max(l.attempt) from fsm_async_calls l where l.call_id = b.call_id), b.previous,
                (select count(*) from (select 1 from fsm_once o where o.call_id = b.call_id limit 5000) as n)
            from (
                with recursive walk (start, call_id, previous, back, most) as (
                    select w.start, c.call_id, c.previous, 1, w.most
                    from w
                    cross join ",
            $before,
            " fsm_async_calls c where c.call_id = w.start and c.attempt = 1 ",
            $after,
            "
                    union all
                    select walk.start, c.call_id, c.previous, walk.back + 1, walk.most
                    from walk
                    cross join ",
            $before,
            " fsm_async_calls c where c.call_id = walk.previous and c.attempt = 1 and walk.back < walk.most ",
            $after,
            "
                )
                select walk.start, walk.call_id, walk.previous, walk.back
                from walk
            ) as b
            order by b.start, b.back"
        )
    };
}

/// Each call and those before it, newest first and at most `most` of each, as far as they are there: its last attempt, the call before it, and
/// how much it remembers, counted up to 5,000. Rides the primary keys. SQLite joins crosswise in the order that is written; PostgreSQL looks
/// each call up by itself.
pub const CALLS_BACK: Many = Many {
    columns: "start uuid, most bigint",
    sqlite: calls_back!("", ""),
    postgres: calls_back!("lateral (select c.call_id, c.previous from", "offset 0) as c"),
};

/// Calls beside the calls: what caught one of their attempts before that call was run again by hand. Rides the primary key.
pub const CALLS_BESIDE: Many = many(
    "call_id uuid",
    "
    select distinct c.call_id, c.previous
    from w
    join fsm_async_calls c on c.call_id = w.call_id and c.attempt > 1 and c.previous is not null
    where c.previous is distinct from (select f.previous from fsm_async_calls f where f.call_id = w.call_id and f.attempt = 1)",
);

/// Whether each of the calls made a transition. Rides the unique index of successes.
pub const TRANSITIONS: Many = many(
    "call_id uuid",
    "
    select coalesce((select c.verb = c.to_state or c.event not like 'Caught<%' from fsm_async_calls c where c.call_id = w.call_id and c.state = 'success'), false)
    from w",
);

/// How much each call remembers, counted up to 5,000. Rides the primary key.
pub const ONCE_COUNTS: Many = many(
    "call_id uuid",
    "
    select w.call_id, (select count(*) from (select 1 from fsm_once o where o.call_id = w.call_id limit 5000) as n)
    from w",
);

/// Of call `$1`, at most `$3` attempts between the first and `$2` are gone, the oldest ones. Rides the primary key.
pub const PRUNE_BETWEEN: Sql = same(
    "
    delete from fsm_async_calls
    where (call_id, attempt) in (
        select c.call_id, c.attempt
        from fsm_async_calls c
        where c.call_id = $1 and c.attempt > 1 and c.attempt < $2
        order by c.attempt
        limit $3
    )
    returning previous",
);

/// At most `$2` of what call `$1` remembers is gone. Rides the primary key.
pub const PRUNE_SOME_ONCE: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (select o.call_id, o.name from fsm_once o where o.call_id = $1 order by o.name limit $2)
    returning call_id",
);

/// At most `$2` notes of instance `$1` are gone. Rides the index by instance.
pub const PRUNE_SOME_HISTORY: Sql = same(
    "
    delete from fsm_history
    where history_id in (select h.history_id from fsm_history h where h.instance_id = $1 order by h.history_id limit $2)
    returning instance_id",
);

/// At most `$2` requests to instance `$1` are known no more. Rides the primary key.
pub const PRUNE_SOME_REQUESTS: Sql = same(
    "
    delete from fsm_requests
    where (instance_id, dedup) in (
        select r.instance_id, r.dedup
        from fsm_requests r
        where r.instance_id = $1
        order by r.dedup
        limit $2
    )
    returning instance_id",
);

/// At most `$2` of what waited for instance `$1` is gone. Rides the primary key.
pub const PRUNE_SOME_INBOX: Sql = same(
    "
    delete from fsm_inbox
    where (instance_id, position) in (
        select b.instance_id, b.position
        from fsm_inbox b
        where b.instance_id = $1
        order by b.position
        limit $2
    )
    returning instance_id",
);

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

/// What is remembered `$4` places after call `$1` and name `$2`, of calls before `$3`. Rides the primary key.
pub const ONCE_UNTIL: Sql = same(
    "
    select o.call_id, o.name
    from fsm_once o
    where (o.call_id, o.name) > ($1, $2) and o.call_id < $3
    order by o.call_id, o.name
    limit 1
    offset $4",
);

/// What is remembered after call `$1` and name `$2`, up to `$3` and `$4`, since before `$5`, is gone where the instance is of machine `$6` and
/// rests: its calls are closed, and none will be run again. What nobody's call remembers is gone too. Rides the primary keys.
pub const PRUNE_ONCE_OLD: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (
        select o.call_id, o.name
        from fsm_once o
        left join fsm_async_calls c on c.call_id = o.call_id and c.attempt = 1
        left join fsm_instances i on i.instance_id = c.instance_id
        where (o.call_id, o.name) > ($1, $2) and (o.call_id, o.name) <= ($3, $4) and o.created_at < $5
            and (i.instance_id is null or i.machine = $6 and not i.is_open and i.status <> 'error')
    )
    returning call_id",
);
