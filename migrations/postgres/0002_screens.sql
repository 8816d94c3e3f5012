-- The definition that was started last is the one that counts, also after a rollback.
alter table fsm_machines add column last_seen_at bigint not null default 0;
update fsm_machines set last_seen_at = first_seen_at;

-- What screens page through. Each row of them is written when an instance begins, ends, is cancelled or paused, and by no transition.
create index fsm_instances_running
    on fsm_instances (machine, instance_id)
    where status = 'running';

create index fsm_instances_cancelled
    on fsm_instances (machine, instance_id)
    where status = 'cancelled';

create index fsm_instances_paused
    on fsm_instances (machine, instance_id)
    where paused;
