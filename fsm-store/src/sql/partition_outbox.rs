//! The outbox of a partition: events that verbs sent to instances of other partitions.

use super::statement::{Many, Sql, many, same};

/// Adds events, in the order of `place`. An event that waits already is not added again.
pub const PARTITION_OUTBOX_PUT: Many = Many {
    columns: "place bigint, partition bigint, sender uuid, machine text, key text, call_id uuid, event text, payload bytea, created_at bigint, \
              deliver_at bigint, due_at bigint, priority bigint, notice text",
    sqlite: "
        insert into fsm_partition_outbox
            (partition, sender, machine, key, call_id, event, payload, created_at, deliver_at, due_at, tries, priority, notice)
        select w.partition, w.sender, w.machine, w.key, w.call_id, w.event, w.payload, w.created_at, w.deliver_at, w.due_at, 0, w.priority, w.notice
        from w
        where true
        on conflict (call_id) do nothing",
    postgres: "
        insert into fsm_partition_outbox
            (partition, sender, machine, key, call_id, event, payload, created_at, deliver_at, due_at, tries, priority, notice)
        select w.partition, w.sender, w.machine, w.key, w.call_id, w.event, w.payload, w.created_at, w.deliver_at, w.due_at, 0, w.priority, w.notice
        from w
        order by w.place
        on conflict (call_id) do nothing",
};

/// Names the schedule `$2` and its moment `$3` as the sender of the event with call `$1`. Uses the index by call.
pub const PARTITION_OUTBOX_SCHEDULED: Sql = same(
    "
    update fsm_partition_outbox
    set schedule = $2, moment = $3
    where call_id = $1",
);

/// Records for the schedule that sent call `$1` that its event was refused for the reason `$2`, unless a later moment has failed. Uses the index by
/// call and the primary key of schedules.
pub const PARTITION_OUTBOX_MOMENT_REFUSED: Sql = same(
    "
    update fsm_schedules
    set failed_at = o.moment, error = $2
    from fsm_partition_outbox o
    where o.call_id = $1 and fsm_schedules.name = o.schedule and (fsm_schedules.failed_at is null or fsm_schedules.failed_at < o.moment)",
);

/// The texts for both databases. The argument of `$text` says that a machine is among those of parameter `$2`.
macro_rules! of_machines {
    ($text:ident) => {
        Sql { sqlite: $text!("in (select value from json_each($2))"), postgres: $text!("= any($2)") }
    };
}

macro_rules! targets {
    ($among:literal) => {
        concat!(
            "
    with recursive p (number) as (
        select cast(0 as bigint)
        union all
        select p.number + 1
        from p
        where p.number + 1 < $1
    ), first as (
        select p.number,
            (
                select o.due_at
                from fsm_partition_outbox o
                where o.partition = p.number and o.machine ",
            $among,
            "
                order by o.due_at
                limit 1
            ) as due_at
        from p
    )
    select f.number, f.due_at
    from first f
    where f.due_at is not null"
        )
    };
}

/// The partitions, of `$1`, for which events to instances of the machines `$2` wait, each with the time of the first delivery. Uses the index of due
/// events.
pub const PARTITION_OUTBOX_TARGETS: Sql = of_machines!(targets);

/// The partitions, of `$1`, for which events wait whose next delivery is until `$2` and that are not delayed beyond `$3`: their number, counted up
/// to `$4`, and the time at which the first of those was sent. Uses the index of due events.
pub const PARTITION_OUTBOX_WAITING: Sql = same(
    "
    with recursive p (number) as (
        select cast(0 as bigint)
        union all
        select p.number + 1
        from p
        where p.number + 1 < $1
    ), waiting as (
        select p.number,
            (select count(*) from (
                select 1
                from fsm_partition_outbox o
                where o.partition = p.number and o.due_at <= $2 and (o.deliver_at is null or o.deliver_at <= $3)
                limit $4
            ) as counted) as events,
            (select min(f.created_at) from (
                select o.created_at
                from fsm_partition_outbox o
                where o.partition = p.number and o.due_at <= $2 and (o.deliver_at is null or o.deliver_at <= $3)
                limit $4
            ) as f) as since
        from p
    )
    select w.number, w.events, w.since
    from waiting w
    where w.events > 0",
);

macro_rules! due {
    ($among:literal) => {
        concat!(
            "
    select o.machine, o.key
    from fsm_partition_outbox o
    where o.partition = $1 and o.machine ",
            $among,
            " and o.due_at <= $3
    order by o.due_at
    limit $4"
        )
    };
}

/// The receivers in partition `$1` of the first `$4` events that are due at `$3`, for instances of the machines `$2`. Uses the index of due events.
pub const PARTITION_OUTBOX_DUE: Sql = of_machines!(due);

/// The first events, at most `$4`, for the receiver with machine `$1` and key `$2`, without those that are delayed beyond `$3`. Uses the index of
/// lines.
pub const PARTITION_OUTBOX_LINE: Sql = same(
    "
    select o.outbox_id, o.call_id, o.event, o.payload, o.sender, o.due_at, o.tries, o.priority, o.notice
    from fsm_partition_outbox o
    where o.machine = $1 and o.key = $2 and (o.deliver_at is null or o.deliver_at <= $3)
    order by o.outbox_id
    limit $4",
);

/// Sets the next delivery of each event to `until` if it is `due_at`, and returns those events. Uses the primary key.
pub const PARTITION_OUTBOX_CLAIM: Many = Many {
    columns: "outbox_id bigint, due_at bigint, until bigint",
    sqlite: "
        update fsm_partition_outbox
        set due_at = w.until
        where outbox_id = w.outbox_id and due_at = w.due_at
        returning outbox_id",
    postgres: "
        update fsm_partition_outbox as o
        set due_at = w.until
        from w
        where o.outbox_id = w.outbox_id and o.due_at = w.due_at
        returning o.outbox_id",
};

/// Postpones the events for the receiver with machine `$1` and key `$2` to `$4`, after `$5` tries, without those that are delayed beyond `$3`. Uses
/// the index of lines.
pub const PARTITION_OUTBOX_POSTPONE: Sql = same(
    "
    update fsm_partition_outbox
    set due_at = $4, tries = $5
    where machine = $1 and key = $2 and (deliver_at is null or deliver_at <= $3) and due_at <> $4",
);

/// Deletes delivered events. Uses the index by call.
pub const PARTITION_OUTBOX_TAKE: Many = many(
    "call_id uuid",
    "
    delete from fsm_partition_outbox
    where call_id in (select w.call_id from w)",
);

/// Deletes rows of calls that nobody delivers at the latest `now`. Uses the index by call.
pub const PARTITION_OUTBOX_WITHDRAW: Many = many(
    "call_id uuid, now bigint",
    "
    delete from fsm_partition_outbox
    where call_id in (select w.call_id from w) and due_at <= (select max(w.now) from w)",
);

/// One row if the outbox has call `$1`. Uses the index by call.
pub const PARTITION_OUTBOX_HAS: Sql = same(
    "
    select o.call_id
    from fsm_partition_outbox o
    where o.call_id = $1",
);

/// Deletes delayed events whose delivery has not begun, and returns them. Uses the index by call.
pub const PARTITION_OUTBOX_UNSEND: Many = many(
    "call_id uuid",
    "
    delete from fsm_partition_outbox
    where call_id in (select w.call_id from w) and due_at = deliver_at
    returning call_id, machine, key, event",
);
