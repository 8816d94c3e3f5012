//! The outbox: events that verbs sent to other instances and that wait for room. Also the cancelling of delayed sends.

use super::statement::{Many, Sql, many, same};

/// Returns the receivers of `w` that have a line. Uses the index of lines.
pub const OUTBOX_LINES: Many = many(
    "machine text, key text",
    "
    select w.machine, w.key
    from w
    where exists (select 1 from fsm_outbox o where o.machine = w.machine and o.key = w.key)",
);

/// Adds events to the ends of their lines, in the order of `place`.
pub const OUTBOX_PUT: Many = Many {
    columns: "place bigint, sender uuid, machine text, key text, call_id uuid, event text, payload bytea, created_at bigint, due_at bigint, \
              priority bigint",
    sqlite: "
        insert into fsm_outbox (sender, machine, key, call_id, event, payload, created_at, due_at, tries, priority)
        select w.sender, w.machine, w.key, w.call_id, w.event, w.payload, w.created_at, w.due_at, 0, w.priority
        from w",
    postgres: "
        insert into fsm_outbox (sender, machine, key, call_id, event, payload, created_at, due_at, tries, priority)
        select w.sender, w.machine, w.key, w.call_id, w.event, w.payload, w.created_at, w.due_at, 0, w.priority
        from w
        order by w.place",
};

/// The first events of the line of machine `$1` and key `$2`, at most `$3`. Uses the index of lines.
pub const OUTBOX_LINE: Sql = same(
    "
    select o.call_id, o.event, o.payload, o.sender, o.tries, o.priority
    from fsm_outbox o
    where o.machine = $1 and o.key = $2
    order by o.outbox_id
    limit $3",
);

/// Deletes events from the outbox. Uses the index by call.
pub const OUTBOX_TAKE: Many = Many {
    columns: "call_id uuid",
    sqlite: "
        delete from fsm_outbox
        where call_id in (select w.call_id from w)
        returning call_id",
    postgres: "
        delete from fsm_outbox as o
        using w
        where o.call_id = w.call_id
        returning o.call_id",
};

/// Sets the next delivery of the line of machine `$1` and key `$2` to `$3`, after `$4` consecutive tries that found no room. Uses the index
/// of lines.
pub const OUTBOX_AGAIN: Sql = same(
    "
    update fsm_outbox
    set due_at = $3, tries = $4
    where outbox_id = (
        select o.outbox_id
        from fsm_outbox o
        where o.machine = $1 and o.key = $2
        order by o.outbox_id
        limit 1
    )",
);

/// The lines of machine `$1` with the times of their next delivery, at most `$2`, the earliest first. Uses the index of due lines.
pub const OUTBOX_DUE: Sql = same(
    "
    select o.key, o.due_at
    from fsm_outbox o
    where o.machine = $1 and o.due_at is not null
    order by o.due_at
    limit $2",
);

/// The lines of machine `$1`, at most `$2`, the next delivery first: the receiver, the time when the line began, the time of the next
/// delivery, the number of its events, counted up to `$3`, and the length of the receiver's inbox. Uses the index of due lines and the
/// index of lines.
pub const OUTBOX_WAITING: Sql = same(
    "
    select o.key, o.created_at, o.due_at,
        (select count(*) from (select 1 from fsm_outbox l where l.machine = o.machine and l.key = o.key limit $3) as counted),
        coalesce((select i.inbox_tail - i.inbox_head from fsm_instances i where i.machine = o.machine and i.key = o.key), 0)
    from fsm_outbox o
    where o.machine = $1 and o.due_at is not null
    order by o.due_at
    limit $2",
);

/// The same for the receiver with key `$2`, if events wait for it. Uses the index of lines.
pub const OUTBOX_WAITING_FOR: Sql = same(
    "
    select o.key, o.created_at, o.due_at,
        (select count(*) from (select 1 from fsm_outbox l where l.machine = o.machine and l.key = o.key limit $3) as counted),
        coalesce((select i.inbox_tail - i.inbox_head from fsm_instances i where i.machine = o.machine and i.key = o.key), 0)
    from fsm_outbox o
    where o.machine = $1 and o.key = $2 and o.due_at is not null",
);

/// The number of events that wait for room in the inboxes of machine `$1`, counted up to `$2`. Uses the index of lines.
pub const OUTBOX_COUNT: Sql = same(
    "
    select count(*)
    from (select 1 from fsm_outbox o where o.machine = $1 limit $2) as counted",
);

/// The events that wait for room in the inboxes of machine `$1`, by type. Uses the index of lines.
pub const EVENTS_IN_OUTBOX: Sql = same(
    "
    select o.event, cast(null as text), count(*), min(o.created_at)
    from fsm_outbox o
    where o.machine = $1
    group by o.event",
);

/// Renames the event `$2` to `$3` in the lines of machine `$1`. Uses the index of lines.
pub const OUTBOX_RENAME: Sql = same(
    "
    update fsm_outbox
    set event = $3
    where machine = $1 and event = $2",
);

/// Adds notes to the history of the senders that still exist. Uses the primary key of instances.
pub const NOTE_SENDER: Many = many(
    "instance_id uuid, at bigint, kind text, call_id uuid, detail text",
    "
    insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
    select w.instance_id, w.at, w.kind, w.call_id, w.detail, null
    from w
    where exists (select 1 from fsm_instances i where i.instance_id = w.instance_id)",
);

/// The machines and keys of instances. Uses the primary key.
pub const NAMES: Many = many(
    "instance_id uuid",
    "
    select i.instance_id, i.machine, i.key
    from w
    join fsm_instances i on i.instance_id = w.instance_id",
);

/// Cancels delayed sends and returns their receivers and events. Uses the primary key of timers.
pub const UNSEND: Many = Many {
    columns: "timer_id uuid",
    sqlite: "
        delete from fsm_timers
        where timer_id in (select w.timer_id from w) and state is null and length(payload) > 0
        returning timer_id, instance_id, event",
    postgres: "
        delete from fsm_timers as t
        using w
        where t.timer_id = w.timer_id and t.state is null and length(t.payload) > 0
        returning t.timer_id, t.instance_id, t.event",
};

/// Sets a wake for each of these instances that has not begun, because no further event may come to it. Uses the primary key of instances.
pub const WAKE_UNBEGUN: Many = many(
    "timer_id uuid, instance_id uuid, event text, due_at bigint, payload bytea",
    "
    insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held)
    select w.timer_id, i.instance_id, i.machine, null, w.event, w.payload, w.due_at, false
    from w
    join fsm_instances i on i.instance_id = w.instance_id
    where i.state is null and i.call_id is null and i.status not in ('completed', 'cancelled')",
);
