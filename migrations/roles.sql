-- Four group roles for PostgreSQL, each with what its work needs and no more. None of them can log in: grant them to those who do.
--
--   fsm_owner   owns the tables: runs migrations. `grant fsm_owner to deployer; alter role deployer set role fsm_owner;`
--   fsm_worker  a Runtime: sends, runs verbs, operates, sweeps, deletes what ended. It creates and alters nothing.
--   fsm_sender  a Client: sends, gets, lists, reads histories. It settles no attempt and performs no operator's act.
--   fsm_viewer  a screen or the `fsm` command without --write: reads everything, writes nothing.
--
-- Run it once the tables are there, as a superuser or as who owns them and may create roles, with the schema of the tables first in the
-- search path; and again after each migration. It can be run as often as one likes.
--
-- A send creates or moves on the row of its instance, so a sender may update instances: these roles keep programs to their work, they do not
-- keep a person with a sender's password from writing another state into an instance's row. No attempt would follow from that, and
-- `fsm doctor` would tell.

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
alter table fsm_inbox owner to fsm_owner;
alter table fsm_timers owner to fsm_owner;
alter table fsm_requests owner to fsm_owner;
alter table fsm_once owner to fsm_owner;
alter table fsm_history owner to fsm_owner;
alter table fsm_workers owner to fsm_owner;
alter table fsm_machines owner to fsm_owner;
alter table fsm_migrations owner to fsm_owner;

-- Everybody sees whether the tables are those that the program knows, and which machines there are.
grant select on fsm_migrations, fsm_machines to fsm_worker, fsm_sender, fsm_viewer;

grant select, insert, update, delete on fsm_instances, fsm_async_calls, fsm_inbox, fsm_timers, fsm_workers to fsm_worker;
grant select, insert, delete on fsm_requests, fsm_once, fsm_history to fsm_worker;
grant insert on fsm_machines to fsm_worker;

grant select, insert, update on fsm_instances to fsm_sender;
grant select, insert on fsm_async_calls, fsm_inbox, fsm_timers, fsm_requests to fsm_sender;
grant select on fsm_history to fsm_sender;

grant select on fsm_instances, fsm_async_calls, fsm_inbox, fsm_timers, fsm_requests, fsm_once, fsm_history, fsm_workers to fsm_viewer;
