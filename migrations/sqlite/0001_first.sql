-- One living run of a machine, with its newest attempt: while that is scheduled or executing, it is the instance's open call, and there is room
-- for no other. `due_at` is null unless an attempt waits for its time. Of the instance's transitions, the first `pruned` ones have no attempts
-- any more. `row_version` changes with each write. `waits_for` is the limit that a scheduled attempt waits for, `runs_under` that of an executing one, both with the value of a limit by value;
-- both are null without a limit. `priority` is that of the newest call: -1 is high, 1 is low, null is normal. `progress` is what the executing
-- attempt shows of itself.
-- A child has the columns from `parent` to `failure_event`, and no update changes them. `family` is that of an instance that started children, and
-- `family_group` the group that it started in its present state. `fair_by` is the value of the search field that the machine names for it.
create table fsm_instances (
    instance_id blob not null primary key,
    machine text not null,
    key text not null,
    status text not null,
    state text,
    entered_at integer,
    paused integer not null,
    version integer not null,
    row_version integer not null default 0,
    record blob,
    error text,
    inbox_head integer not null,
    inbox_tail integer not null,
    created_at integer not null,
    updated_at integer not null,
    pruned integer not null default 0,
    is_open integer not null,
    call_id blob,
    attempt integer,
    attempt_state text,
    verb text,
    event text,
    payload blob,
    from_state text,
    to_state text,
    attempt_created_at integer,
    scheduled_at integer,
    due_at integer,
    remaining_attempts integer,
    backoff integer,
    max_backoff integer,
    retry text,
    first_at integer,
    snoozes integer,
    worker blob,
    started_at integer,
    finished_at integer,
    attempt_error text,
    previous blob,
    waits_for text,
    runs_under text,
    priority integer,
    progress blob,
    progress_at integer,
    parent blob,
    parent_group integer,
    parent_elsewhere text,
    attachment text,
    end_event text,
    failure_event text,
    family text,
    family_group integer,
    fair_by text,
    unique (machine, key)
) strict;

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
    call_id blob not null,
    attempt integer not null,
    instance_id blob not null,
    machine text not null,
    verb text not null,
    event text not null,
    payload blob,
    from_state text,
    to_state text not null,
    state text not null,
    created_at integer not null,
    scheduled_at integer not null,
    remaining_attempts integer,
    backoff integer not null,
    max_backoff integer,
    retry text,
    first_at integer not null,
    snoozes integer not null default 0,
    worker blob,
    started_at integer,
    finished_at integer not null,
    error text,
    previous blob,
    priority integer,
    primary key (call_id, attempt)
) strict;

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
    session_id blob not null,
    number integer not null,
    instances blob not null,
    primary key (session_id, number)
) strict, without rowid;

-- Events that wait for their turn. The last one of an instance says where all of them lead, as it was foreseen when it came.
create table fsm_inbox (
    instance_id blob not null,
    position integer not null,
    call_id blob not null,
    event text not null,
    payload blob not null,
    created_at integer not null,
    outlook text,
    priority integer,
    primary key (instance_id, position)
) strict, without rowid;

create unique index fsm_inbox_call
    on fsm_inbox (call_id);

-- Events that verbs sent to other instances and that wait for room: a line for each receiver, in the order of the numbers. The first event of a
-- line, and no other, has the time of the next delivery.
create table fsm_outbox (
    outbox_id integer not null primary key,
    sender blob not null,
    machine text not null,
    key text not null,
    call_id blob not null,
    event text not null,
    payload blob not null,
    created_at integer not null,
    due_at integer,
    tries integer not null,
    priority integer
) strict;

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
    outbox_id integer not null primary key,
    partition integer not null,
    sender blob not null,
    machine text not null,
    key text not null,
    call_id blob not null,
    event text not null,
    payload blob not null,
    created_at integer not null,
    deliver_at integer,
    due_at integer not null,
    tries integer not null,
    priority integer,
    notice text,
    schedule text,
    moment integer
) strict;

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
    parent blob not null,
    parent_group integer not null,
    machine text not null,
    key text not null,
    partition integer not null,
    call_id blob not null,
    attachment text not null,
    end_event text,
    failure_event text,
    cancel_sent integer not null,
    told integer not null,
    state text,
    status text not null,
    created_at integer not null,
    updated_at integer not null,
    primary key (parent, parent_group, machine, key)
) strict, without rowid;

create index fsm_remote_children_open
    on fsm_remote_children (parent, parent_group)
    where status in ('running', 'error');

-- Ends and errors of children that their parents have not been told yet.
create table fsm_child_events (
    child_event_id integer not null primary key,
    parent blob not null,
    child blob not null,
    call_id blob not null,
    event text not null,
    payload blob not null,
    created_at integer not null
) strict;

create index fsm_child_events_parent
    on fsm_child_events (parent, child_event_id);

-- Moments at which an event is delivered. Without a state it is a delayed send.
create table fsm_timers (
    timer_id blob not null primary key,
    instance_id blob not null,
    machine text not null,
    state text,
    event text not null,
    payload blob not null,
    due_at integer not null,
    held integer not null,
    priority integer
) strict;

create index fsm_timers_due
    on fsm_timers (machine, due_at)
    where not held;

create index fsm_timers_instance
    on fsm_timers (instance_id);

-- Sends that are known again by the caller's own id.
create table fsm_requests (
    instance_id blob not null,
    dedup text not null,
    event text,
    digest blob not null,
    call_id blob not null,
    created_at integer not null,
    primary key (instance_id, dedup)
) strict, without rowid;

-- Fields of records by which instances are found, in plain text: a row for each search field of an instance. The key is that of the instance.
create table fsm_search (
    instance_id blob not null,
    name text not null,
    machine text not null,
    key text not null,
    value text not null,
    primary key (instance_id, name)
) strict, without rowid;

create index fsm_search_value
    on fsm_search (machine, name, value, key);

-- Memoised effects of a call.
create table fsm_once (
    call_id blob not null,
    name text not null,
    instance_id blob not null,
    value blob not null,
    created_at integer not null,
    primary key (call_id, name)
) strict, without rowid;

-- What is not an attempt: operator acts, interrupted calls, rejected events, late reports, names that were replaced.
create table fsm_history (
    history_id integer not null primary key,
    instance_id blob not null,
    at integer not null,
    kind text not null check (kind in ('retried', 'cancelled', 'paused', 'resumed', 'skipped', 'rescheduled', 'interrupted', 'rejected', 'refused', 'unsent', 'late', 'migrated', 'left', 'unawaited')),
    call_id blob,
    detail text,
    actor text
) strict;

create index fsm_history_instance
    on fsm_history (instance_id, history_id);

create index fsm_history_rejected
    on fsm_history (call_id)
    where kind = 'rejected';

-- Worker processes. The machine, the boot, the namespaces and the start of the process tell whether it still exists; null if its system does
-- not say. `reachable_us` is that of the lease duration at the last heartbeat. `unreported` counts the attempts that ended there and whose ends
-- the database does not accept. Sessions with the same `code` serve the same machines, verbs, states and events.
create table fsm_workers (
    session_id blob not null primary key,
    host text not null,
    pid integer not null,
    machine_id text,
    boot_id text,
    namespaces text,
    process_started integer,
    started_at integer not null,
    lease_us integer not null,
    lease_until integer not null,
    reachable_us integer not null,
    unreported integer not null default 0,
    code integer not null default 0
) strict;

-- For each lease duration: the time in which workers with that lease reached the database, added up, and the last heartbeat of any of them.
create table fsm_reachable_time (
    lease_us integer not null primary key,
    reachable_us integer not null,
    seen_at integer not null
) strict;

-- Each definition that was ever started.
create table fsm_machines (
    machine text not null,
    hash text not null,
    definition text not null,
    first_seen_at integer not null,
    primary key (machine, hash)
) strict, without rowid;

-- The schedules that the code declares, with the first moment that was not decided. `declared_at` is when a worker last said that its code declares
-- the schedule like this. `requested_at` is an operator's request to send an event now.
create table fsm_schedules (
    name text not null primary key,
    machine text not null,
    timetable text not null,
    zone text not null,
    missed text not null,
    declared_at integer not null,
    next_at integer,
    paused integer not null,
    last_at integer,
    last_key text,
    failed_at integer,
    error text,
    requested_at integer,
    actor text
) strict, without rowid;

-- What limits the calls of verbs: at once, and in a time. `declared` is the setting in the code that was started last. An operator's setting stays
-- until the code declares another one. The next start is due at `next_at` by the rate. With `by_field`, each value of that search field has the limit for
-- itself.
create table fsm_limits (
    name text not null primary key,
    concurrency integer check (concurrency >= 0),
    starts integer check (starts >= 0),
    per_us integer check (per_us > 0),
    burst integer check (burst > 0),
    declared text,
    by_field text,
    next_at integer not null,
    changed_by text,
    changed_at integer
) strict, without rowid;

-- The values of limits by value whose next start is due later than at once by the rate. Other values have no row.
create table fsm_limit_values (
    limit_name text not null,
    value text not null,
    next_at integer not null,
    primary key (limit_name, value)
) strict, without rowid;

create index fsm_limit_values_next
    on fsm_limit_values (limit_name, next_at);

-- On a database with partitions: the places under limits of this partition that calls of instances in other partitions have. A permit admits one claim: that of
-- the instance in row version `row_version`.
create table fsm_limit_permits (
    instance_id blob not null primary key,
    bucket text not null,
    partition integer not null,
    row_version integer not null,
    granted_at integer not null
) strict, without rowid;

create index fsm_limit_permits_bucket
    on fsm_limit_permits (bucket);

-- The W3C trace contexts of calls: that of the sender, and after each attempt that of the attempt. Calls without one have no row.
create table fsm_traces (
    call_id blob not null primary key,
    instance_id blob not null,
    parent text not null,
    state text
) strict, without rowid;

create index fsm_traces_instance
    on fsm_traces (instance_id);
