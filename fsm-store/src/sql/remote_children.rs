//! The children that belong to other partitions than their parents.

use super::statement::{Many, Sql, many, same};

/// Adds children of other partitions, and returns the calls of those that were not there. Uses the primary key.
pub const REMOTE_CHILDREN_PUT: Many = many(
    "parent uuid, parent_group bigint, machine text, key text, partition bigint, call_id uuid, attachment text, end_event text, failure_event text, \
     created_at bigint",
    "
    insert into fsm_remote_children
        (parent, parent_group, machine, key, partition, call_id, attachment, end_event, failure_event, cancel_sent, told, status, created_at, updated_at)
    select w.parent, w.parent_group, w.machine, w.key, w.partition, w.call_id, w.attachment, w.end_event, w.failure_event, false, -1, 'running',
        w.created_at, w.created_at
    from w
    where true
    on conflict (parent, parent_group, machine, key) do nothing
    returning call_id",
);

/// Records the report of a child with machine `$3` and key `$4`, of group `$2` of parent `$1`: number `$5`, state `$6`, status `$7` and time `$8`. A
/// child that is in error is running. Returns the call that started it, unless a report with this number or a later one was recorded. Uses the primary
/// key.
pub const REMOTE_CHILD_REPORT: Sql = same(
    "
    update fsm_remote_children
    set told = $5, state = $6, status = case when $7 = 'error' then 'running' else $7 end, updated_at = $8
    where parent = $1 and parent_group = $2 and machine = $3 and key = $4 and told < $5 and status = 'running'
    returning call_id",
);

/// Adds the event for the end or the error of a child to those that its parent gets, if the parent has not ended and its machine had the event when it
/// started the child. Uses the primary keys.
pub const REMOTE_CHILD_EVENT: Many = many(
    "parent uuid, parent_group bigint, machine text, key text, child uuid, call_id uuid, is_end boolean, payload bytea, created_at bigint",
    "
    insert into fsm_child_events (parent, child, call_id, event, payload, created_at)
    select w.parent, w.child, w.call_id, case when w.is_end then r.end_event else r.failure_event end, w.payload, w.created_at
    from w
    join fsm_remote_children r
        on r.parent = w.parent and r.parent_group = w.parent_group and r.machine = w.machine and r.key = w.key
    join fsm_instances p on p.instance_id = w.parent and p.status in ('running', 'error')
    where case when w.is_end then r.end_event else r.failure_event end is not null",
);

/// Why instance `$1` does not wait for a child of group `$2`: a text, or null if it waits. Uses the primary key.
pub const AWAITS_REMOTE_CHILD: Sql = same(
    "
    select case
        when p.status in ('completed', 'cancelled') then 'its parent had ended before'
        when p.family_group is distinct from $2 then 'its parent had left the state in which it was started'
    end
    from fsm_instances p
    where p.instance_id = $1",
);

/// Marks at most `$2` children of instance `$1` that are to be cancelled with it, and returns those that were not marked. Uses the index of open
/// children.
pub const REMOTE_CHILDREN_CANCEL: Sql = same(
    "
    update fsm_remote_children
    set cancel_sent = true
    where (parent, parent_group, machine, key) in (
        select r.parent, r.parent_group, r.machine, r.key
        from fsm_remote_children r
        where r.parent = $1 and r.status in ('running', 'error') and r.attachment = 'attached' and not r.cancel_sent
        limit $2
    )
    returning partition, parent_group, machine, key",
);

/// The partitions in which instance `$1` has children. Uses the primary key.
pub const REMOTE_CHILDREN_IN: Sql = same(
    "
    select distinct r.partition
    from fsm_remote_children r
    where r.parent = $1
    order by r.partition",
);

/// The name of the parent in another partition that instance `$1` has. Uses the primary key.
pub const PARENT_ELSEWHERE: Sql = same(
    "
    select i.parent_elsewhere
    from fsm_instances i
    where i.instance_id = $1",
);

macro_rules! report {
    ($partition:literal, $machine:literal, $key:literal) => {
        concat!(
            "
        insert into fsm_partition_outbox (partition, sender, machine, key, call_id, event, payload, created_at, due_at, tries, notice)
        select ",
            $partition,
            ", c.instance_id, ",
            $machine,
            ", ",
            $key,
            ", w.call_id, w.event, w.payload, w.created_at, w.created_at, 0, w.notice
        from w
        join fsm_instances c on c.instance_id = w.instance_id
        where c.parent_elsewhere is not null and (w.is_end or c.failure_event is not null)"
        )
    };
}

/// Adds the reports of children to the outbox, for their parents in other partitions. An error is reported if the parent's machine had an event for it
/// when it started the child. Uses the primary key.
pub const REPORT_TO_PARENT: Many = Many {
    columns: "instance_id uuid, call_id uuid, event text, payload bytea, is_end boolean, created_at bigint, notice text",
    sqlite: report!(
        "json_extract(c.parent_elsewhere, '$.partition')",
        "json_extract(c.parent_elsewhere, '$.machine')",
        "json_extract(c.parent_elsewhere, '$.key')"
    ),
    postgres: report!(
        "cast(c.parent_elsewhere::jsonb ->> 'partition' as bigint)",
        "c.parent_elsewhere::jsonb ->> 'machine'",
        "c.parent_elsewhere::jsonb ->> 'key'"
    ),
};

/// Deletes the children in other partitions that these instances started. Uses the primary key.
pub const PRUNE_REMOTE_CHILDREN: Many =
    many("instance_id uuid", "delete from fsm_remote_children where parent in (select w.instance_id from w)");
