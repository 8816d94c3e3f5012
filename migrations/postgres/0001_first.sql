-- One living run of a machine. Of its transitions, the first `pruned` ones have no attempts any more.
-- Keys are compared byte by byte, so that a prefix is a range of the unique index.
-- The fill factor leaves room for an update beside the old row: nothing that changes is indexed, but for the status.
create table fsm_instances (
    instance_id uuid not null primary key,
    machine text not null,
    key text collate "C" not null,
    status text not null check (status in ('running', 'completed', 'error', 'cancelled')),
    state text,
    entered_at bigint,
    paused boolean not null,
    version bigint not null,
    record bytea,
    call_id uuid,
    attempt bigint,
    is_open boolean not null,
    error text,
    inbox_head bigint not null,
    inbox_tail bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    pruned bigint not null default 0,
    unique (machine, key)
) with (fillfactor = 70);

create index fsm_instances_in_error
    on fsm_instances (machine, instance_id)
    where status = 'error';

create index fsm_instances_ended
    on fsm_instances (machine, instance_id)
    where status in ('completed', 'cancelled');

-- One row an attempt. A finished row is the history; nothing is kept twice.
create table fsm_async_calls (
    call_id uuid not null,
    attempt bigint not null check (attempt > 0),
    instance_id uuid not null,
    machine text not null,
    verb text not null,
    event text not null,
    payload bytea,
    from_state text,
    to_state text not null,
    state text not null check (state in ('scheduled', 'executing', 'success', 'error', 'lost', 'released', 'cancelled', 'snoozed')),
    held boolean not null,
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
    finished_at bigint,
    error text,
    previous uuid,
    primary key (call_id, attempt)
);

create unique index fsm_async_calls_one_live
    on fsm_async_calls (instance_id)
    where state in ('scheduled', 'executing');

create unique index fsm_async_calls_one_success
    on fsm_async_calls (call_id)
    where state = 'success';

create index fsm_async_calls_due
    on fsm_async_calls (machine, scheduled_at)
    where state = 'scheduled' and not held;

create index fsm_async_calls_executing
    on fsm_async_calls (worker)
    where state = 'executing';

-- Events that wait for their turn. The last one of an instance says where all of them lead, as it was foreseen when it came.
create table fsm_inbox (
    instance_id uuid not null,
    position bigint not null,
    call_id uuid not null,
    event text not null,
    payload bytea not null,
    created_at bigint not null,
    outlook text,
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
    tries bigint not null
);

create unique index fsm_outbox_call
    on fsm_outbox (call_id);

create index fsm_outbox_line
    on fsm_outbox (machine, key, outbox_id);

create index fsm_outbox_due
    on fsm_outbox (machine, due_at)
    where due_at is not null;

-- Moments at which an event is delivered. Without a state it is a delayed send.
create table fsm_timers (
    timer_id uuid not null primary key,
    instance_id uuid not null,
    machine text not null,
    state text,
    event text not null,
    payload bytea not null,
    due_at bigint not null,
    held boolean not null
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

-- Memoised effects of a call.
create table fsm_once (
    call_id uuid not null,
    name text not null,
    value bytea not null,
    created_at bigint not null,
    primary key (call_id, name)
);

-- What is not an attempt: operator acts, interrupted calls, rejected events, late reports, names that were replaced.
create table fsm_history (
    history_id bigint not null generated always as identity primary key,
    instance_id uuid not null,
    at bigint not null,
    kind text not null check (kind in ('retried', 'cancelled', 'paused', 'resumed', 'skipped', 'rescheduled', 'interrupted', 'rejected', 'refused', 'unsent', 'late', 'migrated')),
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
-- not say. `reachable_us` is that of the lease duration at the last heartbeat.
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
    reachable_us bigint not null
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
