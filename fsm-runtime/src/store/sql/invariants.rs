//! What must hold, and the queries whose rows break it.

use super::{Sql, same};

/// What must hold, and the query whose rows break it: an id and a sentence about it. These read whole tables.
pub struct Invariant {
    pub number: &'static str,
    pub says: &'static str,
    pub query: Sql,
}

const fn invariant(number: &'static str, says: &'static str, query: Sql) -> Invariant {
    Invariant { number, says, query }
}

/// The successful attempts of each instance, oldest first, by the pointers from each call to the one before: `(instance_id, call_id,
/// from_state, to_state, step)`. A chain that bites its tail ends after as many steps as there are calls.
macro_rules! chain {
    ($($query:expr),* $(,)?) => {
        concat!(
            "with recursive walk (instance_id, call_id, back) as (
                select i.instance_id, i.call_id, 0
                from fsm_instances i
                where i.call_id is not null
                union all
                select w.instance_id, p.previous, w.back + 1
                from walk w
                join fsm_async_calls p on p.call_id = w.call_id and p.attempt = 1
                where p.previous is not null and w.back < (select count(*) from fsm_async_calls)
            ),
            chain as (
                select w.instance_id, w.call_id, c.from_state, c.to_state, row_number() over (partition by w.instance_id order by w.back desc) as step
                from walk w
                join fsm_async_calls c on c.call_id = w.call_id and c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
            ) ",
            $($query),*
        )
    };
}

/// The chain of an instance may break where a mapping replaced the name of a state; its history says so.
macro_rules! unless_migrated {
    ($instance:literal) => {
        concat!("not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = ", $instance, ")")
    };
}

pub const INVARIANTS: [Invariant; 17] = [
    invariant(
        "I1",
        "an open call has exactly one live attempt",
        same(
            "
            select i.instance_id, 'is open without a live attempt'
            from fsm_instances i
            where i.is_open and not exists (
                select 1
                from fsm_async_calls c
                where c.call_id = i.call_id and c.state in ('scheduled', 'executing')
            )
            union all
            select c.call_id, 'has ' || count(*) || ' live attempts'
            from fsm_async_calls c
            where c.state in ('scheduled', 'executing')
            group by c.call_id
            having count(*) > 1",
        ),
    ),
    invariant(
        "I2",
        "a closed call has no live attempt",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || ' beside attempt ' || o.attempt || ', ' || o.state
            from fsm_async_calls c
            join fsm_async_calls o on o.call_id = c.call_id and o.attempt <> c.attempt
            where c.state in ('scheduled', 'executing') and (o.state = 'success' or o.attempt > c.attempt)",
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
        "an instance's open call is the one live call it has",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || ' and not what its instance has open'
            from fsm_async_calls c
            left join fsm_instances i on i.instance_id = c.instance_id and i.is_open and i.call_id = c.call_id and i.attempt = c.attempt
            where c.state in ('scheduled', 'executing') and i.instance_id is null",
        ),
    ),
    // The newest call of an instance in error may also be a catch verb's, which succeeded and led nowhere.
    invariant(
        "I5",
        "an instance is in error if and only if its newest call is exhausted and was not retried or skipped since",
        same(
            "
            select i.instance_id, 'is ' || i.status || ', and its newest attempt is ' || coalesce(c.state, 'missing')
            from fsm_instances i
            left join fsm_async_calls c on c.call_id = i.call_id and c.attempt = i.attempt
            where (
                    i.status = 'error'
                    and (c.state is null or c.state not in ('error', 'lost') and not (c.state = 'success' and c.verb <> c.to_state and c.event like 'Caught<%'))
                )
                or (
                    i.status = 'running'
                    and c.state in ('error', 'lost', 'released', 'cancelled', 'snoozed')
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
            select i.instance_id, 'has version ' || i.version || ' and state ' || coalesce(i.state, 'none') || ' after ' || n.successes
                || ' transitions to ' || coalesce(l.to_state, 'none')
            from fsm_instances i
            join (
                select j.instance_id, count(k.step) as successes
                from fsm_instances j
                left join chain k on k.instance_id = j.instance_id
                group by j.instance_id
            ) n on n.instance_id = i.instance_id
            left join chain l on l.instance_id = i.instance_id and l.step = n.successes
            where i.version <> i.pruned + n.successes or i.version > i.pruned and i.state is distinct from l.to_state and "
            , unless_migrated!("i.instance_id")
        )),
    ),
    invariant(
        "I7",
        "each transition begins where the one before it ended, from the first one that is kept on",
        same(chain!(
            "
            select c.call_id, 'went from ' || coalesce(c.from_state, 'none') || ', and the instance was in ' || coalesce(b.to_state, 'none')
            from chain c
            join fsm_instances i on i.instance_id = c.instance_id
            left join chain b on b.instance_id = c.instance_id and b.step = c.step - 1
            where c.from_state is distinct from b.to_state and (c.step > 1 or i.pruned = 0) and "
            , unless_migrated!("c.instance_id"), "
            union all
            select c.call_id, 'succeeded and is not among the calls of its instance'
            from fsm_async_calls c
            left join chain k on k.call_id = c.call_id and k.instance_id = c.instance_id
            where c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%') and k.call_id is null"
        )),
    ),
    // Catch verbs run beside the graph and move nothing.
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
            from fsm_async_calls c
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
    // An error may name its own wait, which leaves the backoff as it is; one that grew, or a lost attempt, waited by the policy.
    invariant(
        "I11",
        "no attempt starts before it is due, and no automatic one is due before the end of the last one and its backoff",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' started before it was due'
            from fsm_async_calls c
            where c.started_at < c.scheduled_at
            union all
            select c.call_id, 'attempt ' || c.attempt || ' was due before the end of the last one and its backoff'
            from fsm_async_calls c
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
            from fsm_async_calls c
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
    // The primary key keeps an id from naming two requests of one instance; here each names one that there is.
    invariant(
        "I14",
        "a dedup id names one request",
        same(
            "
            select r.instance_id, 'knows ' || r.dedup || ' and is no instance'
            from fsm_requests r
            left join fsm_instances i on i.instance_id = r.instance_id
            where i.instance_id is null
            union all
            select r.call_id, 'answers to ' || count(*) || ' dedup ids'
            from fsm_requests r
            group by r.call_id
            having count(*) > 1",
        ),
    ),
    // Who reported is not kept apart from who held the attempt; that there was one is.
    invariant(
        "I15",
        "every attempt that started has a session, and every report came from one that held its attempt",
        same(
            "
            select c.call_id, 'attempt ' || c.attempt || ' is ' || c.state || case when c.worker is null then ' without' else ' with' end || ' a session'
            from fsm_async_calls c
            where (c.worker is null) <> (c.started_at is null)
                or (c.state = 'scheduled' and c.worker is not null)
                or (c.state in ('executing', 'success', 'error', 'lost', 'released', 'snoozed') and c.worker is null)",
        ),
    ),
    // Delayed sends are timers without a state, and outlive states.
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
    // A line without a time would never be delivered.
    invariant(
        "I17",
        "an event of the outbox waits in one place, and the first of each line has the time of the next delivery",
        same(
            "
            select o.call_id, 'waits in the outbox for ' || o.key || ', which has taken it'
            from fsm_outbox o
            where exists (select 1 from fsm_async_calls c where c.call_id = o.call_id)
                or exists (select 1 from fsm_inbox b where b.call_id = o.call_id)
                or exists (select 1 from fsm_timers t where t.timer_id = o.call_id)
            union all
            select o.call_id, 'is ' || case when o.due_at is null then 'the first of its line without' else 'behind others with' end || ' a time'
            from fsm_outbox o
            where (o.due_at is not null)
                <> (o.outbox_id = (select min(f.outbox_id) from fsm_outbox f where f.machine = o.machine and f.key = o.key))",
        ),
    ),
];
