//! Due attempts, and their claims by sessions.

use super::statement::{Many, Sql, many, same};

/// The columns with the payload of an open call and the error of its previous attempt.
macro_rules! payload_and_attempt_before {
    () => {
        ",
        i.payload,
        (select p.error from fsm_async_calls p where p.call_id = i.call_id and p.attempt = i.attempt - 1)"
    };
}

/// The condition for attempts of instances `d` that are due, limited to those in `$6`, or without them.
macro_rules! due_in_sqlite {
    ($limit:literal, $which:literal) => {
        concat!(
            "d.waits_for ",
            $limit,
            " and d.machine = $1 and d.due_at <= $4 and d.verb in (select value from json_each($3)) and d.",
            $which,
            " (select unhex(value) from json_each($6))"
        )
    };
}

macro_rules! due_in_postgres {
    ($limit:literal, $which:literal) => {
        concat!(
            "d.waits_for ",
            $limit,
            " and d.machine = $1 and d.due_at <= $4 and d.verb = any($3::text[]) and d.",
            $which,
            "($6::text[]::uuid[])"
        )
    };
}

/// The attempts to claim: at most `$5`, by priority and then by due time. Normal attempts have the first `$8` places and low ones the first `$9`, if
/// so many are due. Each priority is a range of an index. No more rows than these places are read beyond those that are claimed.
macro_rules! by_priority {
    ($due:expr, $lock:literal, $order:literal) => {
        concat!(
            "high as materialized (
                select d.instance_id, d.due_at
                from fsm_instances d
                where ",
            $due,
            " and d.priority = -1
                order by ",
            $order,
            "
                limit $5",
            $lock,
            "
            ),
            normal as materialized (
                select d.instance_id, d.due_at
                from fsm_instances d
                where ",
            $due,
            " and d.priority is null
                order by ",
            $order,
            "
                limit case when (select count(*) from high) > $8 then $5 - (select count(*) from high) + $8 else $5 end",
            $lock,
            "
            ),
            low as materialized (
                select d.instance_id, d.due_at
                from fsm_instances d
                where ",
            $due,
            " and d.priority = 1
                order by ",
            $order,
            "
                limit $5 - (select count(*) from high) - (select count(*) from normal) + $8 + $9",
            $lock,
            "
            ),
            due as materialized (
                select x.instance_id
                from (
                    select high.instance_id, high.due_at, 1 as place
                    from high
                    union all
                    select normal.instance_id, normal.due_at, case when row_number() over (order by normal.due_at) <= $8 then 0 else 2 end
                    from normal
                    union all
                    select low.instance_id, low.due_at, case when row_number() over (order by low.due_at) <= $9 then 0 else 3 end
                    from low
                ) as x
                order by x.place, x.due_at
                limit $5
            )"
        )
    };
}

macro_rules! claim_in_sqlite {
    ($due:expr) => {
        concat!(
            "
            update fsm_instances
            set attempt_state = 'executing', worker = $2, started_at = $4, due_at = null, runs_under = waits_for, waits_for = null,
                row_version = row_version + 1
            where instance_id in (",
            $due,
            ")
            returning instance_id"
        )
    };
}

macro_rules! claim_in_postgres {
    ($due:expr) => {
        concat!(
            "with ",
            $due,
            ",
            i as (
                update fsm_instances u
                set attempt_state = 'executing', worker = $2, started_at = $4, due_at = null, runs_under = u.waits_for, waits_for = null,
                    row_version = u.row_version + 1
                from due
                where u.instance_id = due.instance_id
                returning u.*
            ),
            logged as (
                insert into fsm_session_log (session_id, number, instances)
                select $2, $7, string_agg(uuid_send(i.instance_id), ''::bytea)
                from i
                having count(*) > 0
            )
            select ",
            instance!(),
            payload_and_attempt_before!(),
            has_timer!(),
            "
            from i
            order by i.scheduled_at"
        )
    };
}

macro_rules! claim_by_priority {
    ($limit:literal, $order:literal) => {
        Sql {
            sqlite: claim_in_sqlite!(concat!(
                "with ",
                by_priority!(due_in_sqlite!($limit, "instance_id not in"), "", $order),
                " select due.instance_id from due"
            )),
            postgres: claim_in_postgres!(by_priority!(due_in_postgres!($limit, "instance_id <> all"), " for update skip locked", $order)),
        }
    };
}

macro_rules! claim_these {
    ($limit:literal) => {
        Sql {
            sqlite: claim_in_sqlite!(concat!(
                "select d.instance_id from fsm_instances d where ",
                due_in_sqlite!($limit, "instance_id in"),
                " limit $5"
            )),
            postgres: claim_in_postgres!(concat!(
                "due as materialized (select d.instance_id from fsm_instances d where ",
                due_in_postgres!($limit, "instance_id = any"),
                " limit $5 for update skip locked)"
            )),
        }
    };
}

/// Claims for session `$2` the due attempts of machine `$1` for the verbs `$3` at time `$4`, at most `$5`, except those of the instances `$6` and those
/// that wait for a limit. Of the places, `$8` go to normal attempts first and `$9` to low ones; the others go by priority. Uses the due index and
/// that of priorities. PostgreSQL writes row `$7` of the session log and returns the claimed attempts. SQLite returns the ids for `CLAIMED`.
pub const CLAIM: Sql = claim_by_priority!("is null", "d.due_at");

/// The same, only of attempts with a normal priority, and without the places of others: one range instead of three. Uses the due index.
pub const CLAIM_NORMAL: Sql = Sql {
    sqlite: claim_in_sqlite!(concat!(
        "select d.instance_id from fsm_instances d where ",
        due_in_sqlite!("is null", "instance_id not in"),
        " and d.priority is null order by d.due_at limit $5"
    )),
    postgres: claim_in_postgres!(concat!(
        "due as materialized (select d.instance_id from fsm_instances d where ",
        due_in_postgres!("is null", "instance_id <> all"),
        " and d.priority is null order by d.due_at limit $5 for update skip locked)"
    )),
};

/// As `CLAIM`, only of the instances `$6`. Uses the primary key.
pub const CLAIM_THESE: Sql = claim_these!("is null");

/// As `CLAIM`, of the attempts that wait for the limit `$10`. The transaction holds the lock of the limit. Uses the index of limited attempts.
pub const CLAIM_LIMITED: Sql = claim_by_priority!("= $10", "d.priority, d.due_at");

/// The same, only of the instances `$6`, which wait for the limit `$8`. Uses the primary key.
pub const CLAIM_LIMITED_THESE: Sql = claim_these!("= $8");

/// As `CLAIM_THESE`, of the instances `$6`, each of which waits in the bucket of the same place in `$8`. The transaction holds the lock of the limit. Uses
/// the primary key.
pub const CLAIM_BUCKETS: Sql = Sql {
    sqlite: claim_in_sqlite!(
        "select d.instance_id
            from json_each($6) x
            join json_each($8) b on b.key = x.key
            join fsm_instances d on d.instance_id = unhex(x.value) and d.waits_for = b.value
            where d.machine = $1 and d.due_at <= $4 and d.verb in (select value from json_each($3))
            limit $5"
    ),
    postgres: claim_in_postgres!(
        "due as materialized (
                select d.instance_id
                from unnest($6::text[]::uuid[], $8::text[]) as x (instance_id, bucket)
                join fsm_instances d on d.instance_id = x.instance_id and d.waits_for = x.bucket
                where d.machine = $1 and d.due_at <= $4 and d.verb = any($3::text[])
                limit $5
                for update of d skip locked
            )"
    ),
};

/// As `CLAIM_BUCKETS`, only in the row versions of the same places in `$9`. A permit admits each of them. Uses the primary key.
pub const CLAIM_PERMITTED: Sql = Sql {
    sqlite: claim_in_sqlite!(
        "select d.instance_id
            from json_each($6) x
            join json_each($8) b on b.key = x.key
            join json_each($9) v on v.key = x.key
            join fsm_instances d on d.instance_id = unhex(x.value) and d.waits_for = b.value and d.row_version = cast(v.value as integer)
            where d.machine = $1 and d.due_at <= $4 and d.verb in (select value from json_each($3))
            limit $5"
    ),
    postgres: claim_in_postgres!(
        "due as materialized (
                select d.instance_id
                from unnest($6::text[]::uuid[], $8::text[], $9::text[]::bigint[]) as x (instance_id, bucket, row_version)
                join fsm_instances d on d.instance_id = x.instance_id and d.waits_for = x.bucket and d.row_version = x.row_version
                where d.machine = $1 and d.due_at <= $4 and d.verb = any($3::text[])
                limit $5
                for update of d skip locked
            )"
    ),
};

/// The first attempts of one priority that meet a condition, in an order.
macro_rules! of_priority {
    ($columns:literal, $condition:expr, $priority:literal, $limit:literal, $order:literal) => {
        concat!(
            "
            select * from (
                select ",
            $columns,
            " from fsm_instances i where ",
            $condition,
            " and i.priority ",
            $priority,
            " order by ",
            $order,
            " limit ",
            $limit,
            "
            ) as of_priority"
        )
    };
}

/// The attempts `$columns` of each priority that meet a condition, in the order of their due times, at most `$limit` of each. An index that begins with
/// the priority gives this order in PostgreSQL only if the order names it, because `is null` is no equality there.
macro_rules! each_priority {
    ($columns:literal, $condition:expr, $limit:literal) => {
        each_priority!($columns, $condition, $limit, "i.due_at")
    };
    ($columns:literal, $condition:expr, $limit:literal, $order:literal) => {
        concat!(
            of_priority!($columns, $condition, "is null", $limit, $order),
            " union all ",
            of_priority!($columns, $condition, "= -1", $limit, $order),
            " union all ",
            of_priority!($columns, $condition, "= 1", $limit, $order)
        )
    };
}

macro_rules! claimable {
    ($condition:expr, $order:literal) => {
        concat!(
            "
            select x.call_id, x.instance_id, x.key
            from (",
            each_priority!("i.call_id, i.instance_id, i.key, i.priority, i.due_at", $condition, "$4", $order),
            "
            ) as x
            order by coalesce(x.priority, 0), x.due_at
            limit $4"
        )
    };
}

macro_rules! claimable_in_both {
    ($limit:literal, $order:literal) => {
        Sql {
            sqlite: claimable!(
                concat!(
                    "i.waits_for ",
                    $limit,
                    " and i.machine = $1 and i.due_at <= $3 and i.verb in (select value from json_each($2))
                    and i.instance_id not in (select unhex(value) from json_each($5))"
                ),
                $order
            ),
            postgres: claimable!(
                concat!(
                    "i.waits_for ",
                    $limit,
                    " and i.machine = $1 and i.due_at <= $3 and i.verb = any($2::text[])
                    and i.instance_id <> all($5::text[]::uuid[])"
                ),
                $order
            ),
        }
    };
}

/// The calls, instances and keys of machine `$1` for the verbs `$2` at time `$3`, at most `$4`, that `CLAIM` would claim, without the
/// instances `$5`. Uses the due index and that of priorities.
pub const CLAIMABLE: Sql = claimable_in_both!("is null", "i.due_at");

/// The same for `CLAIM_LIMITED` and the limit `$6`. Uses the index of limited attempts.
pub const CLAIMABLE_LIMITED: Sql = claimable_in_both!("= $6", "i.priority, i.due_at");

/// Releases the attempt of instance `$1` that session `$2` claimed. Uses the primary key.
pub const UNCLAIM: Sql = same(
    "
    update fsm_instances
    set attempt_state = 'scheduled', worker = null, started_at = null, waits_for = runs_under, runs_under = null,
        row_version = row_version + 1, due_at = case when paused then null else scheduled_at end
    where instance_id = $1 and attempt_state = 'executing' and worker = $2",
);

/// Each instance with its open attempt, the payload, and the error of the previous attempt. Uses the primary keys.
pub const CLAIMED: Many = many(
    "instance_id uuid",
    concat!(
        "select ",
        instance!(),
        payload_and_attempt_before!(),
        "
        from w
        join fsm_instances i on i.instance_id = w.instance_id"
    ),
);

macro_rules! next_call {
    ($condition:expr) => {
        concat!("select x.due_at from (", each_priority!("i.due_at", $condition, "1"), ") as x order by x.due_at limit 1")
    };
}

/// The due time of the first scheduled attempt of machine `$1` for the verbs `$2`, except for the instances `$3` and those that wait for a limit.
/// Uses the due index and that of priorities.
pub const NEXT_CALL: Sql = Sql {
    sqlite: next_call!(
        "i.waits_for is null and i.machine = $1 and i.due_at is not null and i.verb in (select value from json_each($2))
            and i.instance_id not in (select unhex(value) from json_each($3))"
    ),
    postgres: next_call!(
        "i.waits_for is null and i.machine = $1 and i.due_at is not null and i.verb = any($2::text[])
            and i.instance_id <> all($3::text[]::uuid[])"
    ),
};
