-- Four group roles for PostgreSQL, each with what its work needs and no more. None of them can log in: grant them to those who do.
--
--   fsm_owner   owns the tables: runs migrations. `grant fsm_owner to deployer; alter role deployer set role fsm_owner;`
--   fsm_worker  a Runtime: sends, runs verbs, operates, sweeps, deletes what ended. It creates and alters nothing.
--   fsm_sender  a Client: sends, gets, lists, reads histories. It begins and completes no attempt and performs no operator's act.
--   fsm_viewer  a screen or the `fsm` command without --write: reads everything, writes nothing.
--
-- Run it once the tables are there, as a superuser or as who owns them and may create roles, with the schema of the tables first in the
-- search path; and again after each migration. It can be run as often as one likes.
--
-- On a database with partitions, run it for each partition, with the schema of the directory behind that of the partition:
-- `set search_path = fsm_0000, public;`
--
-- A sender writes events, and nothing else: what it sends waits in the inbox or for its time until a worker takes it, and that worker alone says
-- which verb runs. It may insert instances that have done nothing yet with their search fields, events, delayed events and dedup ids, and of
-- an instance's row it may move the end of the inbox. Triggers check each of these rows when a sender commits. A person with a sender's password can send any event of
-- any machine, fill inboxes up to their own limit and beyond, and hold locks; that person cannot run a verb that the graph does not give, change
-- a state, a record, an attempt or a history, or run out a timer.
--
-- Who is a member of fsm_sender and not of fsm_worker is a sender. A role of your own that has rights on the tables by itself is not checked.

do $$
declare
    role text;
begin
    foreach role in array array['fsm_owner', 'fsm_worker', 'fsm_sender', 'fsm_viewer'] loop
        begin
            execute format('create role %I nologin', role);
        exception when duplicate_object or unique_violation then
            null;
        end;
        execute format('grant usage on schema %I to %I', current_schema(), role);
    end loop;
    execute format('grant create on schema %I to fsm_owner', current_schema());
end
$$;

alter table fsm_instances owner to fsm_owner;
alter table fsm_async_calls owner to fsm_owner;
alter view fsm_attempts owner to fsm_owner;
alter table fsm_session_log owner to fsm_owner;
alter table fsm_inbox owner to fsm_owner;
alter table fsm_outbox owner to fsm_owner;
alter table fsm_partition_outbox owner to fsm_owner;
alter table fsm_child_events owner to fsm_owner;
alter table fsm_remote_children owner to fsm_owner;
alter table fsm_timers owner to fsm_owner;
alter table fsm_requests owner to fsm_owner;
alter table fsm_search owner to fsm_owner;
alter table fsm_once owner to fsm_owner;
alter table fsm_history owner to fsm_owner;
alter table fsm_workers owner to fsm_owner;
alter table fsm_reachable_time owner to fsm_owner;
alter table fsm_machines owner to fsm_owner;
alter table fsm_schedules owner to fsm_owner;
alter table fsm_traces owner to fsm_owner;
alter table fsm_limits owner to fsm_owner;
alter table fsm_limit_values owner to fsm_owner;
alter table fsm_limit_permits owner to fsm_owner;
alter table fsm_migrations owner to fsm_owner;

-- Everybody sees whether the tables are those that the program knows, and which machines there are.
grant select on fsm_migrations, fsm_machines, fsm_limits to fsm_worker, fsm_sender, fsm_viewer;

grant select, insert, update, delete on fsm_instances, fsm_async_calls, fsm_session_log, fsm_inbox, fsm_outbox, fsm_partition_outbox, fsm_child_events, fsm_remote_children, fsm_timers, fsm_search, fsm_workers,
    fsm_reachable_time
    to fsm_worker;
grant select on fsm_attempts to fsm_worker;
grant select, insert, delete on fsm_requests, fsm_once, fsm_history to fsm_worker;
grant insert, update on fsm_machines, fsm_limits to fsm_worker;
grant select, insert, update, delete on fsm_schedules, fsm_traces, fsm_limit_values, fsm_limit_permits to fsm_worker;

revoke all on fsm_instances, fsm_async_calls, fsm_attempts, fsm_session_log, fsm_inbox, fsm_outbox, fsm_partition_outbox, fsm_child_events, fsm_remote_children, fsm_timers, fsm_requests, fsm_search, fsm_once,
    fsm_history, fsm_workers, fsm_reachable_time, fsm_machines, fsm_limits, fsm_limit_values, fsm_limit_permits, fsm_schedules, fsm_traces from fsm_sender;
grant select on fsm_machines, fsm_limits, fsm_async_calls, fsm_history to fsm_sender;
grant select, insert on fsm_instances, fsm_inbox, fsm_timers, fsm_requests, fsm_search, fsm_traces to fsm_sender;
grant update on fsm_traces to fsm_sender;
grant update (inbox_tail, updated_at, row_version) on fsm_instances to fsm_sender;

grant select on fsm_instances, fsm_async_calls, fsm_attempts, fsm_session_log, fsm_inbox, fsm_outbox, fsm_partition_outbox, fsm_child_events, fsm_remote_children, fsm_timers, fsm_requests, fsm_search, fsm_once,
    fsm_history, fsm_workers, fsm_reachable_time, fsm_limit_values, fsm_limit_permits, fsm_schedules, fsm_traces to fsm_viewer;

-- Everybody finds the partitions. Only a database with partitions has these tables.
do $$
declare
    found regclass;
    schema name;
begin
    foreach found in array array[to_regclass('fsm_partition'), to_regclass('fsm_partitions')] loop
        if found is not null then
            select n.nspname into schema from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = found;
            execute format('grant usage on schema %I to fsm_owner, fsm_worker, fsm_sender, fsm_viewer', schema);
            execute format('alter table %s owner to fsm_owner', found);
            execute format('grant select on %s to fsm_worker, fsm_sender, fsm_viewer', found);
        end if;
    end loop;
end
$$;

-- What a sender may write, checked when it commits, once all of it is there. The instance is locked, so that it stays as it was checked.

create or replace function fsm_check_sent_instance() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        if new.status <> 'running' or new.state is not null or new.entered_at is not null or new.paused or new.version <> 0
            or new.record is not null or new.call_id is not null
            or new.attempt is not null or new.is_open or new.attempt_state is not null or new.due_at is not null or new.worker is not null
            or new.waits_for is not null or new.runs_under is not null or new.priority is not null
            or new.payload is not null or new.previous is not null or new.error is not null or new.pruned <> 0 or new.inbox_head <> 0
            or new.inbox_tail not in (0, 1) or new.parent is not null or new.parent_elsewhere is not null or new.family is not null
        then
            raise insufficient_privilege using message = 'permission denied: a sender creates instances that have done nothing yet';
        end if;
        if new.inbox_tail = 1 and not exists (select 1 from fsm_inbox b where b.instance_id = new.instance_id and b.position = 0) then
            raise insufficient_privilege using message = 'permission denied: the inbox of a new instance ends where its events end';
        end if;
    elsif old.status in ('completed', 'cancelled') then
        raise insufficient_privilege using message = 'permission denied: a sender does not change an instance that has ended';
    elsif new.row_version <> old.row_version + 1 then
        raise insufficient_privilege using message = 'permission denied: each write to an instance changes its row version by one';
    elsif new.inbox_tail <> old.inbox_tail and (
        new.inbox_tail <> old.inbox_tail + 1
        or not exists (select 1 from fsm_inbox b where b.instance_id = new.instance_id and b.position = old.inbox_tail)
    ) then
        raise insufficient_privilege using message = 'permission denied: a sender moves the end of an inbox by the event that it adds';
    end if;
    return null;
end
$$;

create or replace function fsm_check_sent_event() returns trigger language plpgsql as $$
begin
    perform 1
    from fsm_instances i
    where i.instance_id = new.instance_id and i.status in ('running', 'error') and i.inbox_head <= new.position and new.position < i.inbox_tail
    for share;
    if not found then
        raise insufficient_privilege using message = 'permission denied: a sender adds events to the end of the inbox of an instance that has not ended';
    end if;
    if new.event = 'Timeout' then
        raise insufficient_privilege using message = 'permission denied: a timer runs out by itself';
    end if;
    if new.event = 'ChildrenEnded' or new.event like 'ChildEnded<%' or new.event like 'ChildFailed<%' then
        raise insufficient_privilege using message = 'permission denied: children report their ends by themselves';
    end if;
    if exists (select 1 from fsm_async_calls c where c.call_id = new.call_id) or exists (select 1 from fsm_timers t where t.timer_id = new.call_id)
        or exists (select 1 from fsm_instances i where i.instance_id = new.instance_id and i.call_id = new.call_id)
    then
        raise insufficient_privilege using message = 'permission denied: the call of an event that is sent is new';
    end if;
    return null;
end
$$;

create or replace function fsm_check_sent_timer() returns trigger language plpgsql as $$
begin
    perform 1
    from fsm_instances i
    where i.instance_id = new.instance_id and i.status in ('running', 'error') and i.machine = new.machine
        and (new.state is null or length(new.payload) = 0 and new.state is not distinct from i.state)
    for share;
    if not found or new.held or new.event = 'Timeout' then
        raise insufficient_privilege using message = 'permission denied: a sender delays events, and sets no timer of a state';
    end if;
    if exists (select 1 from fsm_async_calls c where c.call_id = new.timer_id) or exists (select 1 from fsm_inbox b where b.call_id = new.timer_id)
        or exists (select 1 from fsm_instances i where i.instance_id = new.instance_id and i.call_id = new.timer_id)
    then
        raise insufficient_privilege using message = 'permission denied: the call of an event that is delayed is new';
    end if;
    return null;
end
$$;

create or replace function fsm_check_sent_request() returns trigger language plpgsql as $$
begin
    if new.event is null or left(new.dedup, 1) = chr(1) then
        raise insufficient_privilege using message = 'permission denied: the request is an operator''s';
    end if;
    if not exists (select 1 from fsm_inbox b where b.call_id = new.call_id and b.instance_id = new.instance_id)
        and not exists (select 1 from fsm_timers t where t.timer_id = new.call_id and t.instance_id = new.instance_id)
    then
        raise insufficient_privilege using message = 'permission denied: a request to be known again is made with its event';
    end if;
    return null;
end
$$;

create or replace function fsm_check_sent_field() returns trigger language plpgsql as $$
begin
    perform 1
    from fsm_instances i
    where i.instance_id = new.instance_id and i.machine = new.machine and i.key = new.key and i.status = 'running' and i.version = 0
        and i.record is null
    for share;
    if not found or octet_length(new.value) > 255 then
        raise insufficient_privilege using message = 'permission denied: a sender gives search fields of at most 255 bytes to an instance that has no record yet';
    end if;
    return null;
end
$$;

do $$
declare
    checked record;
    is_sender text := 'pg_has_role(''fsm_sender'', ''member'') and not pg_has_role(''fsm_worker'', ''member'')';
begin
    for checked in
        select *
        from (values
            ('fsm_instances', 'insert or update', 'fsm_check_sent_instance'),
            ('fsm_inbox', 'insert', 'fsm_check_sent_event'),
            ('fsm_timers', 'insert', 'fsm_check_sent_timer'),
            ('fsm_requests', 'insert', 'fsm_check_sent_request'),
            ('fsm_search', 'insert', 'fsm_check_sent_field')
        ) as t (name, acts, function)
    loop
        -- Tables of the sender's own, temporary ones above all, are never taken for ours.
        execute format('alter function %I() set search_path = pg_catalog, %I, pg_temp', checked.function, current_schema());
        execute format('alter function %I() owner to fsm_owner', checked.function);
        execute format('drop trigger if exists fsm_sent on %I', checked.name);
        execute format(
            'create constraint trigger fsm_sent after %s on %I deferrable initially deferred for each row when (%s) execute function %I()',
            checked.acts, checked.name, is_sender, checked.function
        );
    end loop;
end
$$;
