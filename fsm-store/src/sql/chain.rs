//! The chain of an instance's transitions, for the invariants about it.

/// The successful attempts of each instance, the oldest first, found by the pointers from each call to the one before: `(instance_id,
/// call_id, from_state, to_state, came_from, step, is_last)`, where `came_from` is the target of the transition before. In a chain with a
/// cycle the walk ends after as many steps as there are calls. Each step looks a call up by its key: with a join, PostgreSQL may read the whole table
/// for each step, which took minutes for 8,000 calls of one instance. The chain is joined only with keys of tables: it has no index, so a planner
/// that estimates few rows would compare each of them with all others.
macro_rules! chain {
    ($($query:expr),* $(,)?) => {
        concat!(
            "with recursive walk (instance_id, call_id, back) as (
                select f.instance_id, f.call_id, f.back
                from (
                    select i.instance_id, i.call_id, 0 as back
                    from fsm_instances i where i.call_id is not null
                    union all
                    select i.instance_id, i.previous, 1
                    from fsm_instances i where i.is_open and i.attempt = 1 and i.previous is not null
                ) f
                union all
                select w.instance_id,
                    (select p.previous from fsm_async_calls p where p.call_id = w.call_id and p.attempt = 1),
                    w.back + 1
                from walk w
                where w.call_id is not null and w.back < (select count(*) from fsm_async_calls)
            ),
            chain as (
                select w.instance_id, w.call_id, c.from_state, c.to_state,
                    lag(c.to_state) over (partition by w.instance_id order by w.back desc) as came_from,
                    row_number() over (partition by w.instance_id order by w.back desc) as step,
                    row_number() over (partition by w.instance_id order by w.back) = 1 as is_last
                from walk w
                join fsm_async_calls c on c.call_id = w.call_id and c.state = 'success' and (c.verb = c.to_state or c.event not like 'Caught<%')
            ) ",
            $($query),*
        )
    };
}

/// Excludes instances with a mapped state: their chain may break where the name was replaced, and their history has a note of it.
macro_rules! unless_migrated {
    ($instance:literal) => {
        concat!("not exists (select 1 from fsm_history h where h.kind = 'migrated' and h.instance_id = ", $instance, ")")
    };
}
