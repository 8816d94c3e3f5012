//! The pruner's statements: they find and delete ended instances and old history.

use super::statement::{Many, Sql, many, same};

/// The condition that no living instance needs this one: it is no child of an instance that has not ended, its end was delivered to a
/// parent in another partition, and its own children are not being cancelled.
macro_rules! no_family {
    () => {
        "i.family is distinct from 'cancelling' and (
                i.parent_elsewhere is null
                or not exists (select 1 from fsm_partition_outbox o where o.sender = i.instance_id and o.notice is not null)
            ) and (
                i.parent is null
                or not exists (select 1 from fsm_instances p where p.instance_id = i.parent and p.status in ('running', 'error'))
            )"
    };
}

/// The next `$5` ended instances of machine `$1` after `$2` and before `$3`: the newest call, whether the instance ended before `$4` and
/// has no timer, and if so how many notes, requests and waiting events it has, each counted up to `$6`. Uses the index of ended instances,
/// the primary keys, and the indexes by instance.
pub const ENDED: Sql = same(concat!(
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
            i.updated_at < $4 and not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id)
                and ",
    no_family!(),
    " as is_over
        from fsm_instances i
        where i.machine = $1 and i.instance_id > $2 and i.instance_id < $3 and i.status in ('completed', 'cancelled')
        order by i.instance_id
        limit $5
    ) as e
    order by e.instance_id"
));

macro_rules! still_over {
    () => {
        concat!(
            "
        select i.instance_id
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.status in ('completed', 'cancelled') and i.updated_at < w.cutoff
        where not exists (select 1 from fsm_timers t where t.instance_id = i.instance_id) and ",
            no_family!()
        )
    };
}

/// Locks and returns the instances that still are to be deleted. Instances that another transaction has locked are left out. Uses the
/// primary key, and the index of timers by instance.
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

/// Each call and the calls before it, the newest first and at most `most` of each, as far as they exist: its last attempt, the call before
/// it, and the number of its memoised effects, counted up to 5,000. Uses the primary keys. On SQLite, `cross join` keeps the order of the
/// tables; PostgreSQL looks up each call separately.
pub const CALLS_BACK: Many = Many {
    columns: "start uuid, most bigint",
    sqlite: calls_back!("", ""),
    postgres: calls_back!("lateral (select c.call_id, c.previous from", "offset 0) as c"),
};

/// The calls of catch verbs that caught attempts of these calls before the calls were run again manually. Uses the primary key.
pub const CALLS_BESIDE: Many = many(
    "call_id uuid",
    "
    select distinct c.call_id, c.previous
    from w
    join fsm_async_calls c on c.call_id = w.call_id and c.attempt > 1 and c.previous is not null
    where c.previous is distinct from (select f.previous from fsm_async_calls f where f.call_id = w.call_id and f.attempt = 1)",
);

/// Returns whether each of the calls made a transition. Uses the primary key.
pub const TRANSITIONS: Many = many(
    "call_id uuid",
    "
    select exists (
        select 1
        from fsm_async_calls c
        where c.call_id = w.call_id and c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
    )
    from w",
);

/// The number of memoised effects of each call, counted up to 5,000. Uses the primary key.
pub const ONCE_COUNTS: Many = many(
    "call_id uuid",
    "
    select w.call_id, (select count(*) from (select 1 from fsm_once o where o.call_id = w.call_id limit 5000) as n)
    from w",
);

/// Deletes at most `$3` attempts of call `$1` between the first one and `$2`, the oldest first. Uses the primary key.
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

/// Deletes at most `$2` memoised effects of call `$1`. Uses the primary key.
pub const PRUNE_SOME_ONCE: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (select o.call_id, o.name from fsm_once o where o.call_id = $1 order by o.name limit $2)
    returning call_id",
);

/// Deletes at most `$2` notes of instance `$1`. Uses the index by instance.
pub const PRUNE_SOME_HISTORY: Sql = same(
    "
    delete from fsm_history
    where history_id in (select h.history_id from fsm_history h where h.instance_id = $1 order by h.history_id limit $2)
    returning instance_id",
);

/// Deletes at most `$2` dedup records of instance `$1`. Uses the primary key.
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

/// Deletes at most `$2` events from the inbox of instance `$1`. Uses the primary key.
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

/// Deletes the inboxes of the instances. Uses the primary key.
pub const PRUNE_INBOX: Many = many("instance_id uuid", "delete from fsm_inbox where instance_id in (select w.instance_id from w)");

/// Deletes the dedup records of the instances. Uses the primary key.
pub const PRUNE_REQUESTS: Many = many("instance_id uuid", "delete from fsm_requests where instance_id in (select w.instance_id from w)");

/// Deletes the events of children that were not delivered to these instances. Uses the index by parent.
pub const PRUNE_CHILD_EVENTS: Many = many("instance_id uuid", "delete from fsm_child_events where parent in (select w.instance_id from w)");

/// Deletes the notes of the instances. Uses the index by instance.
pub const PRUNE_HISTORY: Many = many("instance_id uuid", "delete from fsm_history where instance_id in (select w.instance_id from w)");

/// Deletes the instances. Uses the primary key.
pub const PRUNE_INSTANCES: Many = many("instance_id uuid", "delete from fsm_instances where instance_id in (select w.instance_id from w)");

/// All attempts of calls before `$3`, after attempt `$2` of call `$1`, at most `$4`. Uses the primary key.
pub const OLD_ATTEMPTS: Sql = same(concat!(
    "select ",
    attempt!(),
    "
    from fsm_async_calls c
    where (c.call_id, c.attempt) > ($1, $2) and c.call_id < $3
    order by c.call_id, c.attempt
    limit $4"
));

/// Deletes the attempts. Uses the primary key.
pub const PRUNE_ATTEMPTS: Many = Many {
    columns: "call_id uuid, attempt bigint",
    sqlite: "delete from fsm_async_calls where (call_id, attempt) in (select w.call_id, w.attempt from w)",
    postgres: "delete from fsm_async_calls as c using w where c.call_id = w.call_id and c.attempt = w.attempt",
};

/// Deletes the memoised effects of the calls. Uses the primary key.
pub const PRUNE_ONCE_OF: Many = many("call_id uuid", "delete from fsm_once where call_id in (select w.call_id from w)");

/// Deletes the calls with all their attempts. Uses the primary key.
pub const PRUNE_CALLS_OF: Many = many("call_id uuid", "delete from fsm_async_calls where call_id in (select w.call_id from w)");

/// Adds the number of pruned transitions to the instances. Uses the primary key.
pub const PRUNED: Many = many(
    "instance_id uuid, transitions bigint",
    "
    update fsm_instances as i
    set pruned = i.pruned + w.transitions
    from w
    where i.instance_id = w.instance_id",
);

/// The id of the last of the next `$2` notes after note `$1`. Uses the primary key.
pub const NOTES_UNTIL: Sql = same(
    "
    select max(n.history_id)
    from (select h.history_id from fsm_history h where h.history_id > $1 order by h.history_id limit $2) as n",
);

/// Deletes the notes after `$1` up to `$2` that were made before `$3`, of instances of machine `$4` that have not ended, unless they belong
/// to a call that still exists. Uses the primary keys.
pub const PRUNE_NOTES: Sql = same(
    "
    delete from fsm_history
    where history_id in (
        select h.history_id
        from fsm_history h
        join fsm_instances i on i.instance_id = h.instance_id
        where h.history_id > $1 and h.history_id <= $2 and h.at < $3 and i.machine = $4 and i.status in ('running', 'error')
            and not exists (select 1 from fsm_async_calls c where c.call_id = h.call_id and c.attempt = 1)
            and not (i.is_open and i.call_id is not distinct from h.call_id)
    )
    returning history_id",
);

/// The dedup record at position `$3`, from 0, after instance `$1` and dedup id `$2`. Uses the primary key.
pub const REQUESTS_UNTIL: Sql = same(
    "
    select r.instance_id, r.dedup
    from fsm_requests r
    where (r.instance_id, r.dedup) > ($1, $2)
    order by r.instance_id, r.dedup
    limit 1
    offset $3",
);

/// Deletes the dedup records after instance `$1` and dedup id `$2`, up to `$3` and `$4`, that were made before `$5`, of instances of
/// machine `$6` that have not ended, if their call neither waits nor still exists. Uses the primary keys and the inbox's index by call.
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
            and not (i.is_open and i.call_id = r.call_id)
            and not exists (select 1 from fsm_inbox b where b.call_id = r.call_id)
            and not exists (select 1 from fsm_timers t where t.timer_id = r.call_id)
    )
    returning dedup",
);

/// The memoised effect at position `$4`, from 0, after call `$1` and name `$2`, of calls before `$3`. Uses the primary key.
pub const ONCE_UNTIL: Sql = same(
    "
    select o.call_id, o.name
    from fsm_once o
    where (o.call_id, o.name) > ($1, $2) and o.call_id < $3
    order by o.call_id, o.name
    limit 1
    offset $4",
);

/// Deletes the memoised effects after call `$1` and name `$2`, up to `$3` and `$4`, that were stored before `$5`, if their instance belongs
/// to machine `$6`, has no open call and is not in error: none of its calls will run again. Also deletes those whose instance no longer
/// exists. Uses the primary keys.
pub const PRUNE_ONCE_OLD: Sql = same(
    "
    delete from fsm_once
    where (call_id, name) in (
        select o.call_id, o.name
        from fsm_once o
        left join fsm_instances i on i.instance_id = o.instance_id
        where (o.call_id, o.name) > ($1, $2) and (o.call_id, o.name) <= ($3, $4) and o.created_at < $5
            and (i.instance_id is null or i.machine = $6 and not i.is_open and i.status <> 'error')
    )
    returning call_id",
);
