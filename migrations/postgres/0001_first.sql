-- One living run of a machine, with its newest attempt: while that is scheduled or executing, it is the instance's open call, and there is room
-- for no other. `due_at` is null unless an attempt waits for its time. Of the instance's transitions, the first `pruned` ones have no attempts
-- any more. `row_version` changes with each write. `waits_for` is the limit that a scheduled attempt waits for, `runs_under` that of an executing one, both with the value of a limit by value;
-- both are null without a limit. `priority` is that of the newest call: -1 is high, 1 is low, null is normal. `progress` is what the executing
-- attempt shows of itself.
-- A child has the columns from `parent` to `failure_event`, and no update changes them. `family` is that of an instance that started children, and
-- `family_group` the group that it started in its present state. `fair_by` is the value of the search field that the machine names for it.
-- Keys are compared byte by byte, so that a prefix is a range of the unique index.
-- The fill factor leaves room for an update beside the old row: a call that begins and ends at once changes no column that is indexed.
create table fsm_instances (
    instance_id uuid not null primary key,
    machine text not null,
    key text collate "C" not null,
    status text not null,
    state text,
    entered_at bigint,
    paused boolean not null,
    version bigint not null,
    row_version bigint not null default 0,
    record bytea,
    error text,
    inbox_head bigint not null,
    inbox_tail bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    pruned bigint not null default 0,
    is_open boolean not null,
    call_id uuid,
    attempt bigint,
    attempt_state text,
    verb text,
    event text,
    payload bytea,
    from_state text,
    to_state text,
    attempt_created_at bigint,
    scheduled_at bigint,
    due_at bigint,
    remaining_attempts bigint,
    backoff bigint,
    max_backoff bigint,
    retry text,
    first_at bigint,
    snoozes bigint,
    worker uuid,
    started_at bigint,
    finished_at bigint,
    attempt_error text,
    previous uuid,
    waits_for text collate "C",
    runs_under text collate "C",
    priority bigint,
    progress bytea,
    progress_at bigint,
    parent uuid,
    parent_group bigint,
    parent_elsewhere text,
    attachment text,
    end_event text,
    failure_event text,
    family text,
    family_group bigint,
    fair_by text collate "C",
    unique (machine, key)
) with (fillfactor = 50);

create index fsm_instances_in_error
    on fsm_instances (machine, instance_id)
    where status = 'error';

create index fsm_instances_ended
    on fsm_instances (machine, instance_id)
    where status in ('completed', 'cancelled');

create index fsm_instances_due
    on fsm_instances (machine, due_at)
    where due_at is not null and waits_for is null and priority is null;

create index fsm_instances_priority
    on fsm_instances (machine, priority, due_at)
    where due_at is not null and waits_for is null and priority is not null;

create index fsm_instances_fair
    on fsm_instances (machine, fair_by, priority, due_at)
    where due_at is not null and waits_for is null and fair_by is not null;

create index fsm_instances_limited
    on fsm_instances (waits_for, machine, priority, due_at)
    where waits_for is not null;

create index fsm_instances_limiting
    on fsm_instances (runs_under)
    where runs_under is not null;

-- The children of an instance, and those of a group that have not ended.
create index fsm_instances_children
    on fsm_instances (parent, instance_id)
    where parent is not null;

create index fsm_instances_open_children
    on fsm_instances (parent, parent_group)
    where parent is not null and status in ('running', 'error');

-- The instances that wait for their children, or whose children are being cancelled.
create index fsm_instances_families
    on fsm_instances (instance_id)
    where family in ('open', 'ended', 'cancelling');

-- One row an attempt that has ended, written once. The first attempt of a call has its payload; each refers to the call before it.
create table fsm_async_calls (
    call_id uuid not null,
    attempt bigint not null,
    instance_id uuid not null,
    machine text not null,
    verb text not null,
    event text not null,
    payload bytea,
    from_state text,
    to_state text not null,
    state text not null,
    created_at bigint not null,
    scheduled_at bigint not null,
    remaining_attempts bigint,
    backoff bigint not null,
    max_backoff bigint,
    retry text,
    first_at bigint not null,
    snoozes bigint not null default 0,
    worker uuid,
    started_at bigint,
    finished_at bigint not null,
    error text,
    previous uuid,
    priority bigint,
    primary key (call_id, attempt)
);

-- Every attempt: those that have ended, and the open one of each instance.
create view fsm_attempts as
    select c.call_id, c.attempt, c.instance_id, c.machine, c.verb, c.event, c.payload, c.from_state, c.to_state, c.state, c.created_at,
        c.scheduled_at, c.remaining_attempts, c.backoff, c.max_backoff, c.retry, c.first_at, c.worker, c.started_at, c.finished_at, c.error,
        c.previous, c.snoozes, c.priority
    from fsm_async_calls c
    union all
    select i.call_id, i.attempt, i.instance_id, i.machine, i.verb, i.event, i.payload, i.from_state, i.to_state, i.attempt_state,
        i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.max_backoff, i.retry, i.first_at, i.worker, i.started_at,
        i.finished_at, i.attempt_error, i.previous, i.snoozes, i.priority
    from fsm_instances i
    where i.is_open;

-- The instances in which a session began attempts, a row for each commit that did: sixteen bytes an instance. The session shortens it.
create table fsm_session_log (
    session_id uuid not null,
    number bigint not null,
    instances bytea not null,
    primary key (session_id, number)
);

-- Ids do not compress.
alter table fsm_session_log alter column instances set storage external;

-- Events that wait for their turn. The last one of an instance says where all of them lead, as it was foreseen when it came.
create table fsm_inbox (
    instance_id uuid not null,
    position bigint not null,
    call_id uuid not null,
    event text not null,
    payload bytea not null,
    created_at bigint not null,
    outlook text,
    priority bigint,
    primary key (instance_id, position)
);

create unique index fsm_inbox_call
    on fsm_inbox (call_id);

-- Events that verbs sent to other instances and that wait for room: a line for each receiver, in the order of the numbers. The first event of a
-- line, and no other, has the time of the next delivery.
create table fsm_outbox (
    outbox_id bigint not null generated always as identity primary key,
    sender uuid not null,
    machine text not null,
    key text not null,
    call_id uuid not null,
    event text not null,
    payload bytea not null,
    created_at bigint not null,
    due_at bigint,
    tries bigint not null,
    priority bigint
);

create unique index fsm_outbox_call
    on fsm_outbox (call_id);

create index fsm_outbox_line
    on fsm_outbox (machine, key, outbox_id);

create index fsm_outbox_due
    on fsm_outbox (machine, due_at)
    where due_at is not null;

-- Events that verbs sent to instances of other partitions, and the notices between parents and children in different partitions, in the order of
-- the numbers. Each has the time of its next delivery. `schedule` and `moment` are those of an event that a schedule sent.
create table fsm_partition_outbox (
    outbox_id bigint not null generated always as identity primary key,
    partition bigint not null,
    sender uuid not null,
    machine text not null,
    key text not null,
    call_id uuid not null,
    event text not null,
    payload bytea not null,
    created_at bigint not null,
    deliver_at bigint,
    due_at bigint not null,
    tries bigint not null,
    priority bigint,
    notice text,
    schedule text,
    moment bigint
);

create unique index fsm_partition_outbox_call
    on fsm_partition_outbox (call_id);

create index fsm_partition_outbox_line
    on fsm_partition_outbox (machine, key, outbox_id);

create index fsm_partition_outbox_due
    on fsm_partition_outbox (partition, due_at);

create index fsm_partition_outbox_sender
    on fsm_partition_outbox (sender)
    where notice is not null;

-- The children that belong to other partitions than their parents: what the parent's partition knows of them. `told` is the number of the last report.
create table fsm_remote_children (
    parent uuid not null,
    parent_group bigint not null,
    machine text not null,
    key text not null,
    partition bigint not null,
    call_id uuid not null,
    attachment text not null,
    end_event text,
    failure_event text,
    cancel_sent boolean not null,
    told bigint not null,
    state text,
    status text not null,
    created_at bigint not null,
    updated_at bigint not null,
    primary key (parent, parent_group, machine, key)
);

create index fsm_remote_children_open
    on fsm_remote_children (parent, parent_group)
    where status in ('running', 'error');

-- Ends and errors of children that their parents have not been told yet.
create table fsm_child_events (
    child_event_id bigint not null generated always as identity primary key,
    parent uuid not null,
    child uuid not null,
    call_id uuid not null,
    event text not null,
    payload bytea not null,
    created_at bigint not null
);

create index fsm_child_events_parent
    on fsm_child_events (parent, child_event_id);

-- Moments at which an event is delivered. Without a state it is a delayed send.
create table fsm_timers (
    timer_id uuid not null primary key,
    instance_id uuid not null,
    machine text not null,
    state text,
    event text not null,
    payload bytea not null,
    due_at bigint not null,
    held boolean not null,
    priority bigint
);

create index fsm_timers_due
    on fsm_timers (machine, due_at)
    where not held;

create index fsm_timers_instance
    on fsm_timers (instance_id);

-- Sends that are known again by the caller's own id.
create table fsm_requests (
    instance_id uuid not null,
    dedup text not null,
    event text,
    digest bytea not null,
    call_id uuid not null,
    created_at bigint not null,
    primary key (instance_id, dedup)
);

-- Fields of records by which instances are found, in plain text: a row for each search field of an instance. The key is that of the instance.
create table fsm_search (
    instance_id uuid not null,
    name text collate "C" not null,
    machine text collate "C" not null,
    key text collate "C" not null,
    value text collate "C" not null,
    primary key (instance_id, name)
);

create index fsm_search_value
    on fsm_search (machine, name, value, key)
    include (instance_id);

-- Memoised effects of a call.
create table fsm_once (
    call_id uuid not null,
    name text not null,
    instance_id uuid not null,
    value bytea not null,
    created_at bigint not null,
    primary key (call_id, name)
);

-- What is not an attempt: operator acts, interrupted calls, rejected events, late reports, names that were replaced.
create table fsm_history (
    history_id bigint not null generated always as identity primary key,
    instance_id uuid not null,
    at bigint not null,
    kind text not null check (kind in ('retried', 'cancelled', 'paused', 'resumed', 'skipped', 'rescheduled', 'interrupted', 'rejected', 'refused', 'unsent', 'late', 'migrated', 'left', 'unawaited')),
    call_id uuid,
    detail text,
    actor text
);

create index fsm_history_instance
    on fsm_history (instance_id, history_id);

create index fsm_history_rejected
    on fsm_history (call_id)
    where kind = 'rejected';

-- Worker processes. The machine, the boot, the namespaces and the start of the process tell whether it still exists; null if its system does
-- not say. `reachable_us` is that of the lease duration at the last heartbeat. `unreported` counts the attempts that ended there and whose ends
-- the database does not accept. Sessions with the same `code` serve the same machines, verbs, states and events.
create table fsm_workers (
    session_id uuid not null primary key,
    host text not null,
    pid bigint not null,
    machine_id text,
    boot_id text,
    namespaces text,
    process_started bigint,
    started_at bigint not null,
    lease_us bigint not null,
    lease_until bigint not null,
    reachable_us bigint not null,
    unreported bigint not null default 0,
    code bigint not null default 0
);

-- For each lease duration: the time in which workers with that lease reached the database, added up, and the last heartbeat of any of them.
create table fsm_reachable_time (
    lease_us bigint not null primary key,
    reachable_us bigint not null,
    seen_at bigint not null
);

-- Each definition that was ever started.
create table fsm_machines (
    machine text not null,
    hash text not null,
    definition text not null,
    first_seen_at bigint not null,
    primary key (machine, hash)
);

-- The schedules that the code declares, with the first moment that was not decided. `declared_at` is when a worker last said that its code declares
-- the schedule like this. `requested_at` is an operator's request to send an event now.
create table fsm_schedules (
    name text not null primary key,
    machine text not null,
    timetable text not null,
    zone text not null,
    missed text not null,
    declared_at bigint not null,
    next_at bigint,
    paused boolean not null,
    last_at bigint,
    last_key text,
    failed_at bigint,
    error text,
    requested_at bigint,
    actor text
);

-- What limits the calls of verbs: at once, and in a time. `declared` is the setting in the code that was started last. An operator's setting stays
-- until the code declares another one. The next start is due at `next_at` by the rate. With `by_field`, each value of that search field has the limit for
-- itself.
create table fsm_limits (
    name text not null primary key,
    concurrency bigint check (concurrency >= 0),
    starts bigint check (starts >= 0),
    per_us bigint check (per_us > 0),
    burst bigint check (burst > 0),
    declared text,
    by_field text,
    next_at bigint not null,
    changed_by text,
    changed_at bigint
);

-- The values of limits by value whose next start is due later than at once by the rate. Other values have no row.
create table fsm_limit_values (
    limit_name text not null,
    value text collate "C" not null,
    next_at bigint not null,
    primary key (limit_name, value)
);

create index fsm_limit_values_next
    on fsm_limit_values (limit_name, next_at);

-- On a database with partitions: the places under limits of this partition that calls of instances in other partitions have. A permit admits one claim: that of
-- the instance in row version `row_version`.
create table fsm_limit_permits (
    instance_id uuid not null primary key,
    bucket text collate "C" not null,
    partition bigint not null,
    row_version bigint not null,
    granted_at bigint not null
);

create index fsm_limit_permits_bucket
    on fsm_limit_permits (bucket);

-- The W3C trace contexts of calls: that of the sender, and after each attempt that of the attempt. Calls without one have no row.
create table fsm_traces (
    call_id uuid not null primary key,
    instance_id uuid not null,
    parent text not null,
    state text
);

create index fsm_traces_instance
    on fsm_traces (instance_id);
