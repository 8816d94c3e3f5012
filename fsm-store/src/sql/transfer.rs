//! The export and import of whole tables.

use super::statement::{Many, Sql, many, same};

/// The statements to export a table from one database and import it into another.
pub struct Table {
    /// The name without `fsm_`.
    pub name: &'static str,
    /// The types of its key. The rows are read in the order of the key.
    pub key: &'static [&'static str],
    /// The rows of machine `$1`, or of all machines, after the key `$3`…, at most `$2`. The key follows the columns of each row. Uses the
    /// primary key.
    pub page: Sql,
    /// Inserts rows of another database.
    pub insert: Many,
}

/// The tables in the order of their references. The tables of workers, session logs, reachable time, permits and migrations belong to one database
/// and are not transferred.
pub const TABLES: [Table; 17] = [
    Table {
        name: "machines",
        key: &["text", "text"],
        page: same(
            "
            select x.machine, x.hash, x.definition, x.first_seen_at, x.last_seen_at, x.machine, x.hash
            from fsm_machines x
            where (x.machine, x.hash) > ($3, $4) and (cast($1 as text) is null or x.machine = $1)
            order by x.machine, x.hash
            limit $2",
        ),
        insert: many(
            "machine text, hash text, definition text, first_seen_at bigint, last_seen_at bigint",
            "
            insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
            select *
            from w
            where true
            on conflict (machine, hash) do nothing",
        ),
    },
    // The settings of limits are not of one machine. They go with the whole database only.
    Table {
        name: "limits",
        key: &["text"],
        page: same(
            "
            select x.name, x.concurrency, x.starts, x.per_us, x.burst, x.declared, x.by_field, x.next_at, x.changed_by, x.changed_at, x.name
            from fsm_limits x
            where x.name > $3 and cast($1 as text) is null
            order by x.name
            limit $2",
        ),
        insert: many(
            "name text, concurrency bigint, starts bigint, per_us bigint, burst bigint, declared text, by_field text, next_at bigint, changed_by text, \
             changed_at bigint",
            "
            insert into fsm_limits (name, concurrency, starts, per_us, burst, declared, by_field, next_at, changed_by, changed_at)
            select *
            from w
            where true
            on conflict (name) do nothing",
        ),
    },
    Table {
        name: "limit_values",
        key: &["text", "text"],
        page: same(
            "
            select x.limit_name, x.value, x.next_at, x.limit_name, x.value
            from fsm_limit_values x
            where (x.limit_name, x.value) > ($3, $4) and cast($1 as text) is null
            order by x.limit_name, x.value
            limit $2",
        ),
        insert: many(
            "limit_name text, value text, next_at bigint",
            "
            insert into fsm_limit_values (limit_name, value, next_at)
            select *
            from w
            where true
            on conflict (limit_name, value) do nothing",
        ),
    },
    Table {
        name: "schedules",
        key: &["text"],
        page: same(
            "
            select x.name, x.machine, x.timetable, x.zone, x.missed, x.declared_at, x.next_at, x.paused, x.last_at, x.last_key, \
                x.failed_at, x.error, x.requested_at, x.actor, x.name
            from fsm_schedules x
            where x.name > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.name
            limit $2",
        ),
        insert: many(
            "name text, machine text, timetable text, zone text, missed text, declared_at bigint, next_at bigint, paused boolean, \
             last_at bigint, last_key text, failed_at bigint, error text, requested_at bigint, actor text",
            "
            insert into fsm_schedules (name, machine, timetable, zone, missed, declared_at, next_at, paused, last_at, last_key, failed_at, \
                error, requested_at, actor)
            select *
            from w
            where true
            on conflict (name) do nothing",
        ),
    },
    Table {
        name: "instances",
        key: &["uuid"],
        page: same(
            "
            select x.instance_id, x.machine, x.key, x.status, x.state, x.paused, x.version, x.row_version, x.record, \
                x.error, x.inbox_head, x.inbox_tail, x.created_at, x.updated_at, x.entered_at, x.pruned, x.is_open, x.call_id, \
                x.attempt, x.attempt_state, x.verb, x.event, x.payload, x.from_state, x.to_state, x.attempt_created_at, \
                x.scheduled_at, x.due_at, x.remaining_attempts, x.backoff, x.max_backoff, x.retry, x.first_at, \
                x.worker, x.started_at, x.finished_at, x.attempt_error, x.previous, x.snoozes, x.waits_for, x.runs_under, x.priority, x.progress, x.progress_at, \
                x.parent, x.parent_group, x.attachment, x.end_event, x.failure_event, x.family, x.family_group, x.fair_by, x.parent_elsewhere, x.instance_id
            from fsm_instances x
            where x.instance_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.instance_id
            limit $2",
        ),
        insert: many(
            "instance_id uuid, machine text, key text, status text, state text, paused boolean, version bigint, \
             row_version bigint, record bytea, error text, inbox_head bigint, inbox_tail bigint, created_at bigint, \
             updated_at bigint, entered_at bigint, pruned bigint, is_open boolean, call_id uuid, attempt bigint, attempt_state text, \
             verb text, event text, payload bytea, from_state text, to_state text, attempt_created_at bigint, \
             scheduled_at bigint, due_at bigint, remaining_attempts bigint, backoff bigint, max_backoff bigint, \
             retry text, first_at bigint, worker uuid, started_at bigint, finished_at bigint, attempt_error text, \
             previous uuid, snoozes bigint, waits_for text, runs_under text, priority bigint, progress bytea, progress_at bigint, parent uuid, parent_group bigint, attachment text, end_event text, failure_event text, \
             family text, family_group bigint, fair_by text, parent_elsewhere text",
            "
            insert into fsm_instances (instance_id, machine, key, status, state, paused, version, row_version, record, error, inbox_head, \
                inbox_tail, created_at, updated_at, entered_at, pruned, is_open, call_id, attempt, attempt_state, verb, event, \
                payload, from_state, to_state, attempt_created_at, scheduled_at, due_at, remaining_attempts, backoff, \
                max_backoff, retry, first_at, worker, started_at, finished_at, attempt_error, previous, snoozes, waits_for, runs_under, priority, progress, progress_at, \
                parent, parent_group, attachment, end_event, failure_event, family, family_group, fair_by, parent_elsewhere)
            select *
            from w",
        ),
    },
    Table {
        name: "async_calls",
        key: &["uuid", "bigint"],
        page: same(
            "
            select x.call_id, x.attempt, x.instance_id, x.machine, x.verb, x.event, x.payload, x.from_state, x.to_state, \
                x.state, x.created_at, x.scheduled_at, x.remaining_attempts, x.backoff, x.max_backoff, x.retry, \
                x.first_at, x.worker, x.started_at, x.finished_at, x.error, x.previous, x.snoozes, x.priority, x.call_id, x.attempt
            from fsm_async_calls x
            where (x.call_id, x.attempt) > ($3, $4) and (cast($1 as text) is null or x.machine = $1)
            order by x.call_id, x.attempt
            limit $2",
        ),
        insert: many(
            "call_id uuid, attempt bigint, instance_id uuid, machine text, verb text, event text, payload bytea, \
             from_state text, to_state text, state text, created_at bigint, scheduled_at bigint, \
             remaining_attempts bigint, backoff bigint, max_backoff bigint, retry text, first_at bigint, worker uuid, \
             started_at bigint, finished_at bigint, error text, previous uuid, snoozes bigint, priority bigint",
            "
            insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at, \
                scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, \
                finished_at, error, previous, snoozes, priority)
            select *
            from w",
        ),
    },
    Table {
        name: "inbox",
        key: &["uuid", "bigint"],
        page: same(
            "
            select x.instance_id, x.position, x.call_id, x.event, x.payload, x.outlook, x.created_at, x.priority, x.instance_id, x.position
            from fsm_inbox x
            where (x.instance_id, x.position) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.instance_id, x.position
            limit $2",
        ),
        insert: many(
            "instance_id uuid, position bigint, call_id uuid, event text, payload bytea, outlook text, created_at bigint, priority bigint",
            "
            insert into fsm_inbox (instance_id, position, call_id, event, payload, outlook, created_at, priority)
            select *
            from w",
        ),
    },
    Table {
        name: "outbox",
        key: &["bigint"],
        page: same(
            "
            select x.sender, x.machine, x.key, x.call_id, x.event, x.payload, x.created_at, x.due_at, x.tries, x.priority, x.outbox_id
            from fsm_outbox x
            where x.outbox_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.outbox_id
            limit $2",
        ),
        insert: many(
            "sender uuid, machine text, key text, call_id uuid, event text, payload bytea, created_at bigint, due_at bigint, tries bigint, priority bigint",
            "
            insert into fsm_outbox (sender, machine, key, call_id, event, payload, created_at, due_at, tries, priority)
            select *
            from w
            where true
            on conflict (call_id) do nothing",
        ),
    },
    Table {
        name: "partition_outbox",
        key: &["bigint"],
        page: same(
            "
            select x.partition, x.sender, x.machine, x.key, x.call_id, x.event, x.payload, x.created_at, x.deliver_at, x.due_at, x.tries, x.priority,
                x.notice, x.schedule, x.moment, x.outbox_id
            from fsm_partition_outbox x
            where x.outbox_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.outbox_id
            limit $2",
        ),
        insert: many(
            "partition bigint, sender uuid, machine text, key text, call_id uuid, event text, payload bytea, created_at bigint, deliver_at bigint, \
             due_at bigint, tries bigint, priority bigint, notice text, schedule text, moment bigint",
            "
            insert into fsm_partition_outbox
                (partition, sender, machine, key, call_id, event, payload, created_at, deliver_at, due_at, tries, priority, notice, schedule, moment)
            select *
            from w
            where true
            on conflict (call_id) do nothing",
        ),
    },
    Table {
        name: "remote_children",
        key: &["uuid", "bigint", "text", "text"],
        page: same(
            "
            select x.parent, x.parent_group, x.machine, x.key, x.partition, x.call_id, x.attachment, x.end_event, x.failure_event, x.cancel_sent, x.told, \
                x.state, x.status, x.created_at, x.updated_at, x.parent, x.parent_group, x.machine, x.key
            from fsm_remote_children x
            where (x.parent, x.parent_group, x.machine, x.key) > ($3, $4, $5, $6)
                and (cast($1 as text) is null or x.machine = $1 and exists (select 1 from fsm_instances i where i.instance_id = x.parent and i.machine = $1))
            order by x.parent, x.parent_group, x.machine, x.key
            limit $2",
        ),
        insert: many(
            "parent uuid, parent_group bigint, machine text, key text, partition bigint, call_id uuid, attachment text, end_event text, \
             failure_event text, cancel_sent boolean, told bigint, state text, status text, created_at bigint, updated_at bigint",
            "
            insert into fsm_remote_children (parent, parent_group, machine, key, partition, call_id, attachment, end_event, failure_event, \
                cancel_sent, told, state, status, created_at, updated_at)
            select *
            from w",
        ),
    },
    Table {
        name: "child_events",
        key: &["bigint"],
        page: same(
            "
            select x.parent, x.child, x.call_id, x.event, x.payload, x.created_at, x.child_event_id
            from fsm_child_events x
            where x.child_event_id > $3
                and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.parent and i.machine = $1))
            order by x.child_event_id
            limit $2",
        ),
        insert: many(
            "parent uuid, child uuid, call_id uuid, event text, payload bytea, created_at bigint",
            "
            insert into fsm_child_events (parent, child, call_id, event, payload, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "timers",
        key: &["uuid"],
        page: same(
            "
            select x.timer_id, x.instance_id, x.machine, x.state, x.event, x.payload, x.due_at, x.held, x.priority, x.timer_id
            from fsm_timers x
            where x.timer_id > $3 and (cast($1 as text) is null or x.machine = $1)
            order by x.timer_id
            limit $2",
        ),
        insert: many(
            "timer_id uuid, instance_id uuid, machine text, state text, event text, payload bytea, due_at bigint, held \
             boolean, priority bigint",
            "
            insert into fsm_timers (timer_id, instance_id, machine, state, event, payload, due_at, held, priority)
            select *
            from w",
        ),
    },
    Table {
        name: "requests",
        key: &["uuid", "text"],
        page: same(
            "
            select x.instance_id, x.dedup, x.event, x.digest, x.call_id, x.created_at, x.instance_id, x.dedup
            from fsm_requests x
            where (x.instance_id, x.dedup) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.instance_id, x.dedup
            limit $2",
        ),
        insert: many(
            "instance_id uuid, dedup text, event text, digest bytea, call_id uuid, created_at bigint",
            "
            insert into fsm_requests (instance_id, dedup, event, digest, call_id, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "search",
        key: &["uuid", "text"],
        page: same(
            "
            select x.instance_id, x.name, x.machine, x.key, x.value, x.instance_id, x.name
            from fsm_search x
            where (x.instance_id, x.name) > ($3, $4) and (cast($1 as text) is null or x.machine = $1)
            order by x.instance_id, x.name
            limit $2",
        ),
        insert: many(
            "instance_id uuid, name text, machine text, key text, value text",
            "
            insert into fsm_search (instance_id, name, machine, key, value)
            select *
            from w",
        ),
    },
    Table {
        name: "once",
        key: &["uuid", "text"],
        page: same(
            "
            select x.call_id, x.name, x.instance_id, x.value, x.created_at, x.call_id, x.name
            from fsm_once x
            where (x.call_id, x.name) > ($3, $4) and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.call_id, x.name
            limit $2",
        ),
        insert: many(
            "call_id uuid, name text, instance_id uuid, value bytea, created_at bigint",
            "
            insert into fsm_once (call_id, name, instance_id, value, created_at)
            select *
            from w",
        ),
    },
    Table {
        name: "history",
        key: &["bigint"],
        page: same(
            "
            select x.instance_id, x.at, x.kind, x.call_id, x.detail, x.actor, x.history_id
            from fsm_history x
            where x.history_id > $3 and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.history_id
            limit $2",
        ),
        insert: many(
            "instance_id uuid, at bigint, kind text, call_id uuid, detail text, actor text",
            "
            insert into fsm_history (instance_id, at, kind, call_id, detail, actor)
            select *
            from w",
        ),
    },
    Table {
        name: "traces",
        key: &["uuid"],
        page: same(
            "
            select x.call_id, x.instance_id, x.parent, x.state, x.call_id
            from fsm_traces x
            where x.call_id > $3 and (cast($1 as text) is null or exists (select 1 from fsm_instances i where i.instance_id = x.instance_id and i.machine = $1))
            order by x.call_id
            limit $2",
        ),
        insert: many(
            "call_id uuid, instance_id uuid, parent text, state text",
            "
            insert into fsm_traces (call_id, instance_id, parent, state)
            select *
            from w",
        ),
    },
];
