//! The due calls of machines with `fair_by`.

use super::statement::{Many, Sql, many, same};

/// The condition for calls `d` in the index of fair shares.
macro_rules! fair_call {
    () => {
        "d.due_at is not null and d.waits_for is null and d.fair_by is not null"
    };
}

/// The values from `$2` on for which calls of machine `$1` are scheduled, at most `$3`, in their order. Each is found from the one before, so that no
/// more rows are read than there are values. Uses the index of fair shares.
pub const FAIR_VALUES: Sql = same(concat!(
    "
    with recursive walk (value, number) as (
        select (select min(d.fair_by) from fsm_instances d where d.machine = $1 and d.fair_by >= $2 and ",
    fair_call!(),
    "), cast(1 as bigint)
        union all
        select (select min(d.fair_by) from fsm_instances d where d.machine = $1 and d.fair_by > walk.value and ",
    fair_call!(),
    "), walk.number + 1
        from walk
        where walk.value is not null and walk.number < $3
    )
    select walk.value
    from walk
    where walk.value is not null
    order by walk.value"
));

macro_rules! fair_first {
    ($priority:literal) => {
        concat!(
            "
            select * from (
                select d.fair_by, d.instance_id, d.priority, d.due_at
                from fsm_instances d
                where d.machine = w.machine and d.fair_by = w.value and d.due_at <= w.now and ",
            fair_call!(),
            " and d.priority ",
            $priority,
            "
                order by d.priority, d.due_at
                limit w.most
            ) as x"
        )
    };
}

macro_rules! fair_first_of_each {
    () => {
        concat!(fair_first!("= -1"), " union all ", fair_first!("is null"), " union all ", fair_first!("= 1"))
    };
}

/// The first calls of each value that are due at `now`, at most `most` of each priority: the value, the instance, the priority and the time.
/// Uses the index of fair shares.
pub const FAIR_FIRST: Many = Many {
    columns: "machine text, value text, now bigint, most bigint",
    sqlite: fair_first_of_each!(),
    postgres: concat!("select f.* from w cross join lateral (", fair_first_of_each!(), ") f"),
};

/// Sets the values of instances. Uses the primary key.
pub const FAIR_PUT: Many = many(
    "instance_id uuid, value text",
    "
    update fsm_instances as i
    set fair_by = w.value, row_version = i.row_version + 1
    from w
    where i.instance_id = w.instance_id and i.fair_by is distinct from w.value",
);
