//! Limits by value: the values for which calls wait, their use, and the claims of their calls.

use super::statement::{Many, Sql, many, same};

macro_rules! without_value {
    ($not_in:literal) => {
        concat!(
            "
            due as materialized (",
            each_priority!(
                "i.instance_id",
                concat!("i.waits_for = $1 and i.machine = $2 and i.due_at <= $4 and i.instance_id ", $not_in),
                "$5",
                "i.priority, i.due_at"
            ),
            "
            )"
        )
    };
}

macro_rules! assign {
    ($which:literal) => {
        concat!(
            "
            update fsm_instances
            set waits_for = $1 || '=' || coalesce((
                    select s.value
                    from fsm_search s
                    where s.instance_id = fsm_instances.instance_id and s.name = $3
                ), ''),
                row_version = row_version + 1
            where ",
            $which,
            "
            returning instance_id"
        )
    };
}

/// Gives the calls of machine `$2` that wait for limit `$1`, are due at `$4` and have no value yet the value of search field `$3`: at most `$5` of each
/// priority, without the instances `$6`. The transaction holds the lock of the limit. Uses the index of limited attempts, and the primary keys.
pub const LIMIT_ASSIGN_VALUES: Sql = Sql {
    sqlite: concat!(
        "with ",
        without_value!("not in (select unhex(value) from json_each($6))"),
        assign!("instance_id in (select due.instance_id from due)")
    ),
    postgres: concat!(
        "with ",
        without_value!("<> all($6::text[]::uuid[])"),
        ",
            free as materialized (
                select d.instance_id
                from fsm_instances d
                where d.instance_id in (select due.instance_id from due) and d.waits_for = $1
                for update skip locked
            )",
        assign!("instance_id in (select free.instance_id from free)")
    ),
};

/// The same for the call of instance `$2`. Uses the primary keys.
pub const LIMIT_ASSIGN_VALUE: Sql = same(assign!("instance_id = $2 and waits_for = $1"));

/// The buckets from `$1` on and before `$2` for which calls wait, at most `$3`, in their order. Each is found from the one before, so that no more rows
/// are read than there are buckets. Uses the index of limited attempts.
pub const LIMIT_BUCKETS: Sql = same(
    "
    with recursive walk (bucket, number) as (
        select (select min(d.waits_for) from fsm_instances d where d.waits_for >= $1 and d.waits_for < $2), cast(1 as bigint)
        union all
        select (select min(d.waits_for) from fsm_instances d where d.waits_for > walk.bucket and d.waits_for < $2), walk.number + 1
        from walk
        where walk.bucket is not null and walk.number < $3
    )
    select walk.bucket
    from walk
    where walk.bucket is not null
    order by walk.bucket",
);

macro_rules! limit_uses {
    ($from:literal) => {
        concat!(
            "select w.bucket, (
                select count(*)
                from (select 1 from fsm_instances i where i.runs_under = w.bucket limit w.most) as counted
            ) + (
                select count(*)
                from (select 1 from fsm_limit_permits p where p.bucket = w.bucket limit w.most) as counted
            ), (
                select v.next_at
                from fsm_limit_values v
                where v.limit_name = w.limit_name and v.value = w.value
            )",
            $from
        )
    };
}

/// The use of each bucket: the number of calls that run and that of permits, each up to `most`, and the time of the next start by the rate if that is
/// known. Uses the indexes of what runs and of permits, and the primary key.
pub const LIMIT_USES: Many =
    Many { columns: "bucket text, limit_name text, value text, most bigint", sqlite: limit_uses!(""), postgres: limit_uses!(" from w") };

macro_rules! first_limited {
    ($columns:literal, $bucket:literal, $verbs:literal, $except:literal) => {
        each_priority!(
            $columns,
            concat!(
                "i.waits_for = ",
                $bucket,
                " and i.machine = $2 and i.due_at <= $4 and i.verb ",
                $verbs,
                " and i.instance_id ",
                $except
            ),
            "$5",
            "i.priority, i.due_at"
        )
    };
}

/// The first calls of machine `$2` for the verbs `$3` that wait in each of the buckets `$1` and are due at `$4`, at most `$5` of each priority, without the
/// instances `$6`. Uses the index of limited attempts.
pub const LIMIT_FIRST: Sql = Sql {
    sqlite: concat!(
        "
        select d.waits_for, d.call_id, d.instance_id, d.priority, d.due_at, d.row_version
        from json_each($1) w
        join fsm_instances d on d.instance_id in (select f.instance_id from (",
        first_limited!(
            "i.instance_id, i.due_at",
            "w.value",
            "in (select value from json_each($3))",
            "not in (select unhex(value) from json_each($6))"
        ),
        ") as f)"
    ),
    postgres: concat!(
        "
        select f.waits_for, f.call_id, f.instance_id, f.priority, f.due_at, f.row_version
        from unnest($1::text[]) as w (bucket)
        cross join lateral (",
        first_limited!(
            "i.waits_for, i.call_id, i.instance_id, i.priority, i.due_at, i.row_version",
            "w.bucket",
            "= any($3::text[])",
            "<> all($6::text[]::uuid[])"
        ),
        ") as f"
    ),
};

/// The time at which the next start of each value is due by the rate. Uses the primary key.
pub const LIMIT_VALUE_NEXT: Many = many(
    "limit_name text, value text, next_at bigint",
    "
    insert into fsm_limit_values (limit_name, value, next_at)
    select *
    from w
    where true
    on conflict (limit_name, value) do update
    set next_at = excluded.next_at",
);

/// Deletes values of limit `$1` whose next start was due before `$2`, at most `$3`. Uses the index of that time.
pub const LIMIT_VALUES_PAST: Sql = same(
    "
    delete from fsm_limit_values
    where limit_name = $1 and value in (
        select v.value
        from fsm_limit_values v
        where v.limit_name = $1 and v.next_at < $2
        order by v.next_at
        limit $3
    )",
);
