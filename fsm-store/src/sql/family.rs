//! Families: the ends of children, the events for their parents, and the children that are cancelled with their parents.

use super::invariant::{Invariant, invariant};
use super::statement::{Many, Sql, many, same};

/// Records the end or the error of each child for its parent, if the child's row names an event for it and the parent exists. Uses the
/// primary key.
pub const CHILD_EVENT_PUT: Many = many(
    "instance_id uuid, call_id uuid, is_end boolean, payload bytea, created_at bigint",
    "
    insert into fsm_child_events (parent, child, call_id, event, payload, created_at)
    select c.parent, c.instance_id, w.call_id, case when w.is_end then c.end_event else c.failure_event end, w.payload, w.created_at
    from w
    join fsm_instances c on c.instance_id = w.instance_id
    join fsm_instances p on p.instance_id = c.parent and p.status in ('running', 'error')
    where case when w.is_end then c.end_event else c.failure_event end is not null",
);

/// Notes in the history of each child whose parent no longer waits for it. Uses the primary key.
pub const CHILD_UNAWAITED: Many = many(
    "instance_id uuid, at bigint",
    "
    insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
    select c.instance_id, w.at, 'unawaited', null,
        case
            when p.instance_id is null then 'its parent no longer exists'
            when p.status in ('completed', 'cancelled') then 'its parent had ended before'
            else 'its parent had left the state in which it was started'
        end,
        null
    from w
    join fsm_instances c on c.instance_id = w.instance_id
    left join fsm_instances p on p.instance_id = c.parent
    where p.instance_id is null or p.status in ('completed', 'cancelled') or p.family_group is distinct from c.parent_group",
);

/// The condition that a child of the instance's present group has not ended.
macro_rules! has_open_child {
    () => {
        "exists (
            select 1
            from fsm_instances c
            where c.parent = i.instance_id and c.parent_group = i.family_group and c.status in ('running', 'error')
        )
        or exists (
            select 1
            from fsm_remote_children r
            where r.parent = i.instance_id and r.parent_group = i.family_group and r.status in ('running', 'error')
        )"
    };
}

/// The families of these instances: whether a child of the present group has not ended, and whether there are events of children. Uses the
/// primary key, the index of open children, and the index of child events by parent.
pub const FAMILIES: Many = many(
    "instance_id uuid",
    concat!(
        "
    select i.instance_id, i.machine, i.key, i.status, i.state, i.is_open, i.inbox_tail - i.inbox_head, i.family, i.family_group, ",
        has_open_child!(),
        ", exists (select 1 from fsm_child_events e where e.parent = i.instance_id)
    from w
    join fsm_instances i on i.instance_id = w.instance_id"
    ),
);

/// Two booleans: a child of the present group of instance `$1` has not ended; a child that is to be cancelled with it has not ended. Uses the
/// primary key and the index of open children.
pub const OPEN_CHILDREN: Sql = same(concat!(
    "
    select ",
    has_open_child!(),
    ", exists (
            select 1
            from fsm_instances c
            where c.parent = i.instance_id and c.status in ('running', 'error') and c.attachment = 'attached'
        )
        or exists (
            select 1
            from fsm_remote_children r
            where r.parent = i.instance_id and r.status in ('running', 'error') and r.attachment = 'attached'
        )
    from fsm_instances i
    where i.instance_id = $1"
));

/// The first children of instance `$1` that are to be cancelled with it, of the machines `$2`, at most `$3`. Uses the index of open children.
pub const CHILDREN_TO_CANCEL: Sql = Sql {
    sqlite: "
        select c.machine, c.key
        from fsm_instances c
        where c.parent = $1 and c.status in ('running', 'error') and c.attachment = 'attached' and c.machine in (select value from json_each($2))
        limit $3",
    postgres: "
        select c.machine, c.key
        from fsm_instances c
        where c.parent = $1 and c.status in ('running', 'error') and c.attachment = 'attached' and c.machine = any($2::text[])
        limit $3",
};

/// The next `$2` instances after `$1` that wait for their children, or whose children are being cancelled. Uses the index of families.
pub const FAMILIES_FROM: Sql = same(
    "
    select i.instance_id
    from fsm_instances i
    where i.family in ('open', 'ended', 'cancelling') and i.instance_id > $1
    order by i.instance_id
    limit $2",
);

/// The next `$2` instances after `$1` for which there are events of children. Uses the index by parent.
pub const CHILD_EVENT_PARENTS: Sql = same(
    "
    select distinct e.parent
    from fsm_child_events e
    where e.parent > $1
    order by e.parent
    limit $2",
);

/// The first `$2` events of children for instance `$1`. Uses the index by parent.
pub const CHILD_EVENTS: Sql = same(
    "
    select e.child_event_id, e.call_id, e.event, e.payload
    from fsm_child_events e
    where e.parent = $1
    order by e.child_event_id
    limit $2",
);

/// Deletes events of children. Uses the primary key.
pub const CHILD_EVENTS_TAKE: Many = Many {
    columns: "child_event_id bigint",
    sqlite: "
        delete from fsm_child_events
        where child_event_id in (select w.child_event_id from w)
        returning child_event_id",
    postgres: "
        delete from fsm_child_events as e
        using w
        where e.child_event_id = w.child_event_id
        returning e.child_event_id",
};

/// The number of children of instance `$1` in group `$2`, or of all if it is null, by machine, state and status. Uses the index of children.
pub const FAMILY_COUNTS: Sql = same(
    "
    select e.machine, e.state, e.status, count(*)
    from (
        select i.machine, i.state, i.status
        from fsm_instances i
        where i.parent = $1 and i.parent_elsewhere is null and (cast($2 as bigint) is null or i.parent_group = $2)
        union all
        select r.machine, r.state, r.status
        from fsm_remote_children r
        where r.parent = $1 and (cast($2 as bigint) is null or r.parent_group = $2)
    ) as e
    group by e.machine, e.state, e.status",
);

/// The instance `$1` as a relative of another one. Uses the primary key.
pub const RELATIVE: Sql = same(
    "
    select i.machine, i.key, i.state, i.status
    from fsm_instances i
    where i.instance_id = $1",
);

/// The first `$2` children of instance `$1`, the oldest first. Uses the index of children.
pub const FIRST_CHILDREN: Sql = same(
    "
    select e.machine, e.key, e.state, e.status
    from (
        select m.machine, m.key, m.state, m.status, m.id
        from (
            select i.machine, i.key, i.state, i.status, i.instance_id as id
            from fsm_instances i
            where i.parent = $1 and i.parent_elsewhere is null
            order by i.instance_id
            limit $2
        ) as m
        union all
        select r.machine, r.key, r.state, r.status, r.call_id
        from fsm_remote_children r
        where r.parent = $1
    ) as e
    order by e.id
    limit $2",
);

/// Invariant: a group that is awaited exists, and a group that has ended has no open child. Reads all waiting instances.
pub const AWAITS_CHILDREN: Invariant = invariant(
    "I21",
    "an instance waits for a group of children that exists, and a group that has ended has no child that has not",
    same(
        "
        select i.instance_id, 'is ' || i.family || ' with group ' || i.family_group || ', and has no such children'
        from fsm_instances i
        where i.family in ('open', 'ended') and i.status in ('running', 'error')
            and not exists (select 1 from fsm_instances c where c.parent = i.instance_id and c.parent_group = i.family_group)
            and not exists (select 1 from fsm_remote_children r where r.parent = i.instance_id and r.parent_group = i.family_group)
        union all
        select i.instance_id, 'was told that its children have ended, and ' || c.key || ' is ' || c.status
        from fsm_instances i
        join fsm_instances c on c.parent = i.instance_id and c.parent_group = i.family_group and c.status in ('running', 'error')
        where i.family = 'ended'
        union all
        select i.instance_id, 'was told that its children have ended, and ' || r.key || ' is ' || r.status
        from fsm_instances i
        join fsm_remote_children r on r.parent = i.instance_id and r.parent_group = i.family_group and r.status in ('running', 'error')
        where i.family = 'ended'
        union all
        select c.instance_id, 'is a child without a group, or is in a group without a parent'
        from fsm_instances c
        where (c.parent is null) <> (c.parent_group is null) or (c.parent is null) <> (c.attachment is null)",
    ),
);

macro_rules! is_told {
    ($edges:literal) => {
        concat!(
            "
        select i.instance_id, 'rests in ' || i.state || ', and all of its children have ended'
        from fsm_instances i
        where i.family in ('open', 'ended') and i.status = 'running' and not i.is_open and i.inbox_head = i.inbox_tail
            and not exists (
                select 1
                from fsm_instances c
                where c.parent = i.instance_id and c.parent_group = i.family_group
                    and (c.status in ('running', 'error') or c.updated_at > (select max(l.updated_at) from fsm_instances l) - 60000000)
            )
            and not exists (
                select 1
                from fsm_remote_children r
                where r.parent = i.instance_id and r.parent_group = i.family_group
                    and (r.status in ('running', 'error') or r.updated_at > (select max(l.updated_at) from fsm_instances l) - 60000000)
            )
            and ",
            $edges
        )
    };
}

/// Invariant: the parent of each ended group has its event. A process may be about to deliver it, so that an end counts after a minute, by the time of
/// the newest change of any instance. Reads all waiting instances.
pub const IS_TOLD: Invariant = invariant(
    "I22",
    "an instance at rest whose children have all ended for a minute has been told, if an edge accepts it",
    Sql {
        sqlite: is_told!(
            "exists (
                select 1
                from fsm_machines m, json_each(m.definition, '$.edges') e
                where m.machine = i.machine and json_extract(e.value, '$.from') = i.state and json_extract(e.value, '$.event') = 'ChildrenEnded'
            )"
        ),
        postgres: is_told!(
            "exists (
                select 1
                from fsm_machines m, jsonb_array_elements(m.definition::jsonb -> 'edges') e
                where m.machine = i.machine and e ->> 'from' = i.state and e ->> 'event' = 'ChildrenEnded'
            )"
        ),
    },
);
