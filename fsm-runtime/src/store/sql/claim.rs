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

/// The condition for due attempts on SQLite, limited to the instances or calls `$6`, or excluding them.
macro_rules! due_in_sqlite {
    ($limit:literal, $which:literal) => {
        concat!(
            "i.waits_for ",
            $limit,
            " and i.machine = $1 and i.due_at <= $4 and i.verb in (select value from json_each($3)) and i.",
            $which,
            " (select unhex(value) from json_each($6))
            order by i.due_at
            limit $5"
        )
    };
}

macro_rules! claim_in_sqlite {
    ($limit:literal, $which:literal) => {
        concat!(
            "
            update fsm_instances
            set attempt_state = 'executing', worker = $2, started_at = $4, due_at = null, runs_under = waits_for, waits_for = null,
                row_version = row_version + 1
            where instance_id in (
                select i.instance_id
                from fsm_instances i
                where ",
            due_in_sqlite!($limit, $which),
            "
            )
            returning instance_id"
        )
    };
}

macro_rules! claim_in_postgres {
    ($limit:literal, $which:literal) => {
        concat!(
            "with due as materialized (
                select d.instance_id
                from fsm_instances d
                where d.waits_for ",
            $limit,
            " and d.machine = $1 and d.due_at <= $4 and d.verb = any($3::text[]) and d.",
            $which,
            "($6::text[]::uuid[])
                order by d.due_at
                limit $5
                for update skip locked
            ),
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

/// Claims for session `$2` the due attempts of machine `$1` for the verbs `$3` at time `$4`, at most `$5`, the earliest first, except those
/// of the calls `$6` and those that wait for a limit. Uses the due index. PostgreSQL writes row `$7` of the session log and returns the claimed attempts. SQLite returns
/// the ids for `CLAIMED`.
pub const CLAIM: Sql =
    Sql { sqlite: claim_in_sqlite!("is null", "call_id not in"), postgres: claim_in_postgres!("is null", "call_id <> all") };

/// The same, only of the instances `$6`. Uses the primary key.
pub const CLAIM_THESE: Sql =
    Sql { sqlite: claim_in_sqlite!("is null", "instance_id in"), postgres: claim_in_postgres!("is null", "instance_id = any") };

/// As `CLAIM`, of the attempts that wait for the limit `$8`. The transaction holds the lock of the limit. Uses the index of limited attempts.
pub const CLAIM_LIMITED: Sql =
    Sql { sqlite: claim_in_sqlite!("= $8", "call_id not in"), postgres: claim_in_postgres!("= $8", "call_id <> all") };

/// The same, only of the instances `$6`. Uses the primary key.
pub const CLAIM_LIMITED_THESE: Sql =
    Sql { sqlite: claim_in_sqlite!("= $8", "instance_id in"), postgres: claim_in_postgres!("= $8", "instance_id = any") };

macro_rules! claimable {
    ($verb:literal, $but:literal, $limit:literal) => {
        concat!(
            "
            select i.call_id, i.instance_id, i.key
            from fsm_instances i
            where i.waits_for ",
            $limit,
            " and i.machine = $1 and i.due_at <= $3 and i.verb ",
            $verb,
            " and i.call_id ",
            $but,
            "
            order by i.due_at
            limit $4"
        )
    };
}

macro_rules! claimable_in_both {
    ($limit:literal) => {
        Sql {
            sqlite: claimable!("in (select value from json_each($2))", "not in (select unhex(value) from json_each($5))", $limit),
            postgres: claimable!("= any($2::text[])", "<> all($5::text[]::uuid[])", $limit),
        }
    };
}

/// The calls, instances and keys of machine `$1` for the verbs `$2` at time `$3`, at most `$4`, that `CLAIM` would claim, except the calls
/// `$5`. Uses the due index.
pub const CLAIMABLE: Sql = claimable_in_both!("is null");

/// The same for `CLAIM_LIMITED` and the limit `$6`. Uses the index of limited attempts.
pub const CLAIMABLE_LIMITED: Sql = claimable_in_both!("= $6");

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

/// The due time of the first scheduled attempt of machine `$1` for the verbs `$2`, except for the calls `$3` and those that wait for a limit.
/// Uses the due index.
pub const NEXT_CALL: Sql = Sql {
    sqlite: "
        select i.due_at
        from fsm_instances i
        where i.waits_for is null and i.machine = $1 and i.due_at is not null and i.verb in (select value from json_each($2))
            and i.call_id not in (select unhex(value) from json_each($3))
        order by i.due_at
        limit 1",
    postgres: "
        select i.due_at
        from fsm_instances i
        where i.waits_for is null and i.machine = $1 and i.due_at is not null and i.verb = any($2::text[])
            and i.call_id <> all($3::text[]::uuid[])
        order by i.due_at
        limit 1",
};
