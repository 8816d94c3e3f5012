//! Limits: their settings, what runs under them, and what waits for them.

use super::statement::{Sql, same};

macro_rules! limit {
    () => {
        "l.name, l.concurrency, l.starts, l.per_us, l.burst, l.next_at, l.by_field"
    };
}

/// The condition for the buckets of limit `$limit`, whose names begin with its name. `>` is the character that follows the separator.
macro_rules! is_bucket_of {
    ($column:literal, $limit:literal) => {
        concat!($column, " >= ", $limit, " || '=' and ", $column, " < ", $limit, " || '>'")
    };
}

/// Stores limit `$1` with the setting `$2` to `$5` of the code, whose text is `$6` and search field `$8`, at `$7`. If the code that was started last had the same
/// setting, the row stays as it is. Uses the primary key.
pub const LIMIT_DECLARE: Sql = same(
    "
    insert into fsm_limits (name, concurrency, starts, per_us, burst, declared, by_field, next_at, changed_at)
    values ($1, $2, $3, $4, $5, $6, $8, 0, $7)
    on conflict (name) do update
    set concurrency = excluded.concurrency, starts = excluded.starts, per_us = excluded.per_us, burst = excluded.burst,
        declared = excluded.declared, by_field = excluded.by_field, changed_by = null, changed_at = excluded.changed_at
    where fsm_limits.declared is distinct from excluded.declared",
);

/// Takes their values from the calls that wait for limit `$1`, because its search field has changed. Uses the index of limited attempts.
pub const LIMIT_UNSORT: Sql = same(concat!(
    "
    update fsm_instances
    set waits_for = $1, row_version = row_version + 1
    where ",
    is_bucket_of!("waits_for", "$1")
));

/// Changes the setting of limit `$1` to `$2` to `$5`, by the operator `$6` at `$7`. Uses the primary key.
pub const LIMIT_CHANGE: Sql = same(
    "
    update fsm_limits
    set concurrency = $2, starts = $3, per_us = $4, burst = $5, changed_by = $6, changed_at = $7
    where name = $1
    returning name",
);

macro_rules! running {
    ($limit:literal) => {
        concat!(
            "(select count(*) from fsm_instances i where i.runs_under = ",
            $limit,
            ") + (select count(*) from fsm_instances i where ",
            is_bucket_of!("i.runs_under", $limit),
            ") + (select count(*) from fsm_limit_permits p where p.bucket = ",
            $limit,
            ") + (select count(*) from fsm_limit_permits p where ",
            is_bucket_of!("p.bucket", $limit),
            ")"
        )
    };
}

/// All limits with the number of calls that run under them, as far as that matters; 0 for a limit by value. Permits count as running calls. Reads the
/// whole table, which has few rows, and for each the entries of the indexes of what runs and of permits.
pub const LIMITS: Sql = same(concat!(
    "
    select ",
    limit!(),
    ", case when l.concurrency is null or l.by_field is not null then 0 else ",
    running!("l.name"),
    " end
    from fsm_limits l
    order by l.name"
));

macro_rules! next_limited {
    ($condition:expr) => {
        concat!(
            "
            select l.name, (select min(x.due_at) from (",
            each_priority!("i.due_at", $condition, "1", "i.priority, i.due_at"),
            ") as x)
            from fsm_limits l"
        )
    };
}

/// For each limit, the due time of the first attempt of machine `$1` that waits for it, for the verbs `$2` and except for the instances `$3`. Uses
/// the index of limited attempts.
pub const NEXT_LIMITED: Sql = Sql {
    sqlite: next_limited!(
        "i.waits_for = l.name and i.machine = $1 and i.due_at is not null and i.verb in (select value from json_each($2))
            and i.instance_id not in (select unhex(value) from json_each($3))"
    ),
    postgres: next_limited!(
        "i.waits_for = l.name and i.machine = $1 and i.due_at is not null and i.verb = any($2::text[])
            and i.instance_id <> all($3::text[]::uuid[])"
    ),
};

macro_rules! one_limit {
    () => {
        concat!(
            "
            select ",
            limit!(),
            "
            from fsm_limits l
            where l.name = $1"
        )
    };
}

/// Locks limit `$1` and returns its setting, or nothing if another process has locked it. Uses the primary key.
pub const LIMIT_LOCK: Sql = Sql { sqlite: one_limit!(), postgres: concat!(one_limit!(), " for update skip locked") };

/// The same, and waits for another process that has locked it.
pub const LIMIT_LOCK_NOW: Sql = Sql { sqlite: one_limit!(), postgres: concat!(one_limit!(), " for update") };

/// The number of calls that run under limit `$1`. It is read after the limit was locked, so that it includes what others have claimed. Includes
/// calls that began while the limit was by value, and permits. Uses the indexes of what runs and of permits.
pub const LIMIT_RUNNING: Sql = same(concat!("select ", running!("$1")));

/// The number of calls that run under limit `$1` without a value, with permits. Uses the indexes of what runs and of permits.
pub const LIMIT_RUNNING_WITHOUT_VALUE: Sql = same(
    "select (select count(*) from fsm_instances i where i.runs_under = $1) + (select count(*) from fsm_limit_permits p where p.bucket = $1)",
);

/// Sets the time `$2` at which the next start under limit `$1` is due by its rate. Uses the primary key.
pub const LIMIT_NEXT: Sql = same(
    "
    update fsm_limits
    set next_at = $2
    where name = $1",
);

macro_rules! counted {
    ($condition:expr) => {
        concat!("(select count(*) from (select 1 from fsm_instances i where ", $condition, " limit $2) as counted)")
    };
}

/// All limits for a screen: the setting of the code, who changed it and when, how many calls run and how many wait that are due at `$1`,
/// each counted up to `$2`: those with the limit's name alone, and those with a value. Reads the whole table, which has few rows, and uses the
/// indexes of limited attempts.
pub const LIMITS_SHOWN: Sql = same(concat!(
    "
    select ",
    limit!(),
    ", l.declared, l.changed_by, l.changed_at, ",
    counted!("i.runs_under = l.name"),
    ", ",
    counted!(is_bucket_of!("i.runs_under", "l.name")),
    ", ",
    counted!("i.waits_for = l.name and i.due_at <= $1"),
    ", ",
    counted!(concat!(is_bucket_of!("i.waits_for", "l.name"), " and i.due_at <= $1")),
    "
    from fsm_limits l
    order by l.name"
));
