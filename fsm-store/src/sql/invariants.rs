//! The invariants: queries that return rows only if the database is inconsistent.

use super::invariant::{Invariant, invariant};
use super::statement::{Sql, same};

pub const INVARIANTS: [Invariant; 23] = [
    invariant(
        "I1",
        "an instance is open if and only if its newest attempt is scheduled or executing, and the row has all of that attempt",
        same(
            "
            select i.instance_id, 'is ' || case when i.is_open then '' else 'not ' end || 'open, and its newest attempt is '
                || coalesce(i.attempt_state, 'missing')
            from fsm_instances i
            where i.is_open <> (coalesce(i.attempt_state, 'none') in ('scheduled', 'executing'))
                or (
                    i.is_open
                    and (
                        i.call_id is null or i.attempt is null or i.verb is null or i.event is null or i.to_state is null
                        or i.attempt_created_at is null or i.scheduled_at is null or i.backoff is null or i.first_at is null or i.snoozes is null
                        or i.finished_at is not null
                    )
                )",
        ),
    ),
    invariant(
        "I2",
        "the open attempt is the last one of its call, which has not succeeded",
        same(
            "
            select i.instance_id, 'has attempt ' || i.attempt || ' open beside attempt ' || c.attempt || ', ' || c.state
            from fsm_instances i
            join fsm_async_calls c on c.call_id = i.call_id
            where i.is_open and (c.state = 'success' or c.attempt >= i.attempt)",
        ),
    ),
    invariant(
        "I3",
        "a call succeeds at most once",
        same(
            "
            select c.call_id, 'succeeded ' || count(*) || ' times'
            from fsm_async_calls c
            where c.state = 'success'
            group by c.call_id
            having count(*) > 1",
        ),
    ),
    invariant(
        "I4",
        "the newest attempt of an instance, once it has ended, is kept as one that has, until the retention deletes the instance",
        same(
            "
            select i.instance_id, 'has attempt ' || i.attempt || ' as ' || i.attempt_state || ', which is kept as ' || coalesce(c.state, 'nothing')
            from fsm_instances i
            left join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
            where i.call_id is not null and not i.is_open and c.state is distinct from i.attempt_state
                and not (c.state is null and i.status in ('completed', 'cancelled'))",
        ),
    ),
    // The newest call of an instance in error may also be one of a catch verb that succeeded and caused no transition.
    invariant(
        "I5",
        "an instance is in error if and only if its newest call is exhausted and was not retried or skipped since",
        same(
            "
            select i.instance_id, 'is ' || i.status || ', and its newest attempt is ' || coalesce(i.attempt_state, 'missing')
            from fsm_instances i
            where (
                    i.status = 'error'
                    and (
                        i.attempt_state is null
                        or i.attempt_state not in ('error', 'lost')
                            and not (i.attempt_state = 'success' and i.verb <> i.to_state and i.event like 'Caught<%')
                    )
                )
                or (
                    i.status = 'running'
                    and i.attempt_state in ('error', 'lost', 'released', 'cancelled', 'snoozed')
                    and not exists (
                        select 1
                        from fsm_history h
                        where h.instance_id = i.instance_id and h.kind in ('skipped', 'interrupted') and h.call_id = i.call_id
                    )
                )",
        ),
    ),
    invariant(
        "I6",
        "an instance's version is the number of its transitions, kept and pruned, and its state the target of the last one",
        same(chain!(
            "
            select n.instance_id, 'has version ' || n.version || ' and state ' || coalesce(n.state, 'none') || ' after ' || n.successes
                || ' transitions to ' || coalesce(n.to_state, 'none')
            from (
                select m.instance_id, max(m.version) as version, max(m.pruned) as pruned, max(m.state) as state, sum(m.successes) as successes,
                    max(m.to_state) as to_state
                from (
                    select i.instance_id, i.version, i.pruned, i.state, 0 as successes, cast(null as text) as to_state
                    from fsm_instances i
                    union all
                    select k.instance_id, null, null, null, 1, case when k.is_last then k.to_state end
                    from chain k
                ) m
                group by m.instance_id
            ) n
            where n.version <> n.pruned + n.successes or n.version > n.pruned and n.state is distinct from n.to_state and "
            , unless_migrated!("n.instance_id")
        )),
    ),
    invariant(
        "I7",
        "each transition begins where the one before it ended, from the first one that is kept on",
        same(chain!(
            "
            select c.call_id, 'went from ' || coalesce(c.from_state, 'none') || ', and the instance was in ' || coalesce(c.came_from, 'none')
            from chain c
            join fsm_instances i on i.instance_id = c.instance_id
            where c.from_state is distinct from c.came_from and (c.step > 1 or i.pruned = 0) and "
            , unless_migrated!("c.instance_id"), "
            union all
            select s.call_id, 'succeeded and is not among the calls of its instance'
            from (
                select c.call_id, c.instance_id
                from fsm_async_calls c
                where c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
                except
                select k.call_id, k.instance_id
                from chain k
            ) s"
        )),
    ),
    // Catch verbs cause no transitions.
    invariant(
        "I8",
        "every transition is an edge of a definition that was started",
        Sql {
            sqlite: "
                select c.call_id, c.machine || ' has no edge from ' || coalesce(c.from_state, 'none') || ' to ' || c.to_state || ' on ' || c.event
                from fsm_async_calls c
                where c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
                    and exists (select 1 from fsm_machines m where m.machine = c.machine)
                    and not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = c.instance_id)
                    and not exists (
                        select 1
                        from fsm_machines m, json_each(m.definition, '$.edges') e
                        where m.machine = c.machine and json_extract(e.value, '$.from') is not distinct from c.from_state
                            and json_extract(e.value, '$.to') = c.to_state and json_extract(e.value, '$.event') = c.event
                    )",
            postgres: "
                select c.call_id, c.machine || ' has no edge from ' || coalesce(c.from_state, 'none') || ' to ' || c.to_state || ' on ' || c.event
                from fsm_async_calls c
                where c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
                    and exists (select 1 from fsm_machines m where m.machine = c.machine)
                    and not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = c.instance_id)
                    and not exists (
                        select 1
                        from fsm_machines m, jsonb_array_elements(m.definition::jsonb -> 'edges') e
                        where m.machine = c.machine and e ->> 'from' is not distinct from c.from_state and e ->> 'to' = c.to_state
                            and e ->> 'event' = c.event
                    )",
        },
    ),
    invariant(
        "I9",
        "a call has its first attempt, and from the first one that is kept after it on all others",
        same(
            "
            select c.call_id, 'has ' || count(*) || ' attempts from ' || min(c.attempt) || ' to ' || max(c.attempt)
            from fsm_attempts c
            group by c.call_id
            having min(c.attempt) <> 1
                or max(c.attempt) <> count(*)
                    and max(c.attempt) - min(case when c.attempt > 1 then c.attempt end) <> count(*) - 2",
        ),
    ),
    invariant(
        "I10",
        "failed and lost attempts are no more than the budget, once for the beginning and once for each retry by hand",
        Sql {
            sqlite: "
                select c.call_id, 'failed ' || count(*) || ' times'
                from fsm_async_calls c
                where c.state in ('error', 'lost')
                group by c.call_id
                having count(*) > max(case when c.retry is null then 1 else coalesce(json_extract(c.retry, '$.max_attempts'), 4294967296) end) * (
                    select 1 + count(*)
                    from fsm_history h
                    where h.kind = 'retried' and h.call_id = c.call_id
                )",
            postgres: "
                select c.call_id, 'failed ' || count(*) || ' times'
                from fsm_async_calls c
                where c.state in ('error', 'lost')
                group by c.call_id
                having count(*) > max(case when c.retry is null then 1 else coalesce((c.retry::jsonb ->> 'max_attempts')::bigint, 4294967296) end) * (
                    select 1 + count(*)
                    from fsm_history h
                    where h.kind = 'retried' and h.call_id = c.call_id
                )",
        },
    ),
    // An error may set its own wait, which leaves the backoff as it is. After a lost attempt, or if it grew, the backoff applies.
    invariant(
        "I11",
        "no attempt starts before it is due, and no automatic one is due before the end of the last one and its backoff",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' started before it was due'
            from fsm_attempts c
            where c.started_at < c.scheduled_at
            union all
            select c.call_id, 'attempt ' || c.attempt || ' was due before the end of the last one and its backoff'
            from fsm_attempts c
            join fsm_async_calls p on p.call_id = c.call_id and p.attempt = c.attempt - 1
            where c.scheduled_at < p.finished_at
                or (
                    c.scheduled_at < p.finished_at + p.backoff
                    and (p.state = 'lost' or p.state = 'error' and c.backoff > p.backoff)
                    and not exists (select 1 from fsm_history h where h.kind in ('retried', 'rescheduled') and h.call_id = c.call_id)
                )",
        ),
    ),
    invariant(
        "I12",
        "an attempt is created, then started, then finished",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' was created at ' || c.created_at || ', started at ' || coalesce(c.started_at, -1)
                || ', finished at ' || coalesce(c.finished_at, -1)
            from fsm_attempts c
            where c.started_at < c.created_at or c.finished_at < c.started_at or c.finished_at < c.created_at
                or (c.finished_at is null) <> (c.state in ('scheduled', 'executing'))",
        ),
    ),
    invariant(
        "I13",
        "the events that wait for an instance are dense from its inbox's head to its tail, and none waits for one that has ended",
        same(
            "
            select i.instance_id, 'is ' || i.status || ' with an inbox from ' || i.inbox_head || ' to ' || i.inbox_tail || ' and '
                || count(b.position) || ' events from ' || coalesce(min(b.position), -1)
            from fsm_instances i
            left join fsm_inbox b on b.instance_id = i.instance_id
            group by i.instance_id, i.status, i.inbox_head, i.inbox_tail
            having count(b.position) <> i.inbox_tail - i.inbox_head
                or min(b.position) <> i.inbox_head
                or max(b.position) <> i.inbox_tail - 1
                or (i.status in ('completed', 'cancelled') and count(b.position) > 0)
            union all
            select b.instance_id, 'has events that wait and is no instance'
            from fsm_inbox b
            left join fsm_instances i on i.instance_id = b.instance_id
            where i.instance_id is null",
        ),
    ),
    // The primary key makes a dedup id unique within an instance. Here the instance must exist, and a call has one dedup id.
    invariant(
        "I14",
        "a dedup id names one request, and a search field one instance",
        same(
            "
            select r.instance_id, 'knows ' || r.dedup || ' and is no instance'
            from fsm_requests r left join fsm_instances i on i.instance_id = r.instance_id
            where i.instance_id is null
            union all
            select s.instance_id, 'has the field ' || s.name || ' as ' || s.key || ', and is ' || coalesce(i.key, 'no instance')
            from fsm_search s left join fsm_instances i on i.instance_id = s.instance_id
            where i.machine is distinct from s.machine or i.key is distinct from s.key
            union all
            select r.call_id, 'answers to ' || count(*) || ' dedup ids' from fsm_requests r group by r.call_id having count(*) > 1",
        ),
    ),
    // The database does not store which session reported, only which one held the attempt. This query checks that there was one.
    invariant(
        "I15",
        "every attempt that started has a session, and every report came from one that held its attempt",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || case when c.worker is null then ' without' else ' with' end || ' a session'
            from fsm_attempts c
            where (c.worker is null) <> (c.started_at is null)
                or (c.state = 'scheduled' and c.worker is not null)
                or (c.state in ('executing', 'success', 'error', 'lost', 'released', 'snoozed') and c.worker is null)",
        ),
    ),
    // Delayed sends are timers without a state. They do not end with a state.
    invariant(
        "I16",
        "a timer belongs to the state in which its instance rests",
        same(
            "
            select t.timer_id, 'belongs to ' || coalesce(t.state, 'none') || ', and its instance is ' || coalesce(i.status, 'missing') || ' in '
                || coalesce(i.state, 'none')
            from fsm_timers t
            left join fsm_instances i on i.instance_id = t.instance_id
            where i.instance_id is null
                or (t.state is not null and (t.state is distinct from i.state or i.status in ('completed', 'cancelled')))",
        ),
    ),
    // The first event of a line must have a time, or the line would never be delivered.
    invariant(
        "I17",
        "an event of the outbox waits in one place, and the first of each line has the time of the next delivery",
        same(
            "
            select o.call_id, 'waits in the outbox for ' || o.key || ', which has taken it'
            from fsm_outbox o
            where exists (select 1 from fsm_async_calls c where c.call_id = o.call_id)
                or exists (select 1 from fsm_instances i where i.machine = o.machine and i.key = o.key and i.call_id = o.call_id)
                or exists (select 1 from fsm_inbox b where b.call_id = o.call_id)
                or exists (select 1 from fsm_timers t where t.timer_id = o.call_id)
            union all
            select o.call_id, 'is ' || case when o.due_at is null then 'the first of its line without' else 'behind others with' end || ' a time'
            from fsm_outbox o
            where (o.due_at is not null)
                <> (o.outbox_id = (select min(f.outbox_id) from fsm_outbox f where f.machine = o.machine and f.key = o.key))",
        ),
    ),
    invariant(
        "I18",
        "an attempt is due at the time for which it is scheduled, unless its instance is paused",
        same(
            "
            select i.instance_id, 'is due at ' || coalesce(i.due_at, -1) || ', and its attempt is ' || coalesce(i.attempt_state, 'missing')
            from fsm_instances i
            where i.due_at is distinct from case when i.attempt_state = 'scheduled' and not i.paused then i.scheduled_at end",
        ),
    ),
    invariant(
        "I19",
        "the log of a session has every instance in which it executes an attempt",
        Sql {
            sqlite: "
                select i.instance_id, 'executes in a session whose log does not have it'
                from fsm_instances i
                where i.attempt_state = 'executing' and not exists (
                    select 1 from fsm_session_log l where l.session_id = i.worker and instr(l.instances, i.instance_id) > 0
                )",
            postgres: "
                select i.instance_id, 'executes in a session whose log does not have it'
                from fsm_instances i
                where i.attempt_state = 'executing' and not exists (
                    select 1 from fsm_session_log l where l.session_id = i.worker and position(uuid_send(i.instance_id) in l.instances) > 0
                )",
        },
    ),
    invariant(
        "I20",
        "an attempt waits for a limit while it is scheduled, and runs under it while it executes",
        same(
            "
            select i.instance_id, 'waits for ' || coalesce(i.waits_for, 'no limit') || ' and runs under ' || coalesce(i.runs_under, 'no limit')
                || ', and its attempt is ' || coalesce(i.attempt_state, 'missing')
            from fsm_instances i
            where (i.waits_for is not null and (not i.is_open or i.attempt_state is distinct from 'scheduled'))
                or (i.runs_under is not null and (not i.is_open or i.attempt_state is distinct from 'executing'))",
        ),
    ),
    super::family::AWAITS_CHILDREN,
    super::family::IS_TOLD,
    // No check constraint does this: PostgreSQL would read it anew for each statement that writes (decision 147).
    invariant(
        "I23",
        "each status and state is one of those that exist, and attempts are numbered from 1",
        same(
            "
            select i.instance_id, 'has status ' || i.status || ', attempt ' || coalesce(i.attempt, 0) || ' ' || coalesce(i.attempt_state, 'missing')
                || ', family ' || coalesce(i.family, 'none') || ' and attachment ' || coalesce(i.attachment, 'none')
            from fsm_instances i
            where i.status not in ('running', 'completed', 'error', 'cancelled') or i.attempt < 1
                or i.attempt_state not in ('scheduled', 'executing', 'success', 'error', 'lost', 'released', 'cancelled', 'snoozed')
                or i.family not in ('past', 'open', 'ended', 'cancelling') or i.attachment not in ('attached', 'detached')
            union all
            select c.call_id, 'has attempt ' || c.attempt || ', ' || c.state
            from fsm_async_calls c
            where c.attempt < 1 or c.state not in ('success', 'error', 'lost', 'released', 'cancelled', 'snoozed')",
        ),
    ),
];
