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

-- What is not an attempt: operator acts, rejected events, late reports, names that were replaced.
create table fsm_history (
    history_id bigint not null generated always as identity primary key,
    instance_id uuid not null,
    at bigint not null,
    kind text not null check (kind in ('retried', 'cancelled', 'paused', 'resumed', 'skipped', 'rescheduled', 'rejected', 'late', 'migrated')),
    call_id uuid,
    detail text,
    actor text
);

create index fsm_history_instance
    on fsm_history (instance_id, history_id);

create index fsm_history_rejected
    on fsm_history (call_id)
    where kind = 'rejected';

-- Processes that work, and when each lease ends.
create table fsm_workers (
    session_id uuid not null primary key,
    host text not null,
    pid bigint not null,
    started_at bigint not null,
    lease_until bigint not null
);

-- Each definition that was ever started.
create table fsm_machines (
    machine text not null,
    hash text not null,
    definition text not null,
    first_seen_at bigint not null,
    primary key (machine, hash)
);
