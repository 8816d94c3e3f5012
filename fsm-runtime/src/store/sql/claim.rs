//! Attempts that are due, and whose they become.

use super::{Many, Sql, many, same};

/// The payload of an attempt's call, and why the attempt before it failed. As joins, on tables that nothing is known of, they were planned
/// as a walk over all first attempts.
macro_rules! call_and_attempt_before {
    () => {
        ",
        (select f.payload from fsm_async_calls f where f.call_id = c.call_id and f.attempt = 1),
        (select p.error from fsm_async_calls p where p.call_id = c.call_id and p.attempt = c.attempt - 1)"
    };
}

/// The keys of due attempts in SQLite; which of the calls `$6` are among them, or all but which.
macro_rules! due_in_sqlite {
    ($which:literal) => {
        concat!(
            "c.machine = $1 and c.state = 'scheduled' and not c.held and c.scheduled_at <= $4
                and c.verb in (select value from json_each($3)) and c.call_id ",
            $which,
            " (select unhex(value) from json_each($6))
            order by c.scheduled_at
            limit $5"
        )
    };
}

macro_rules! claim_in_sqlite {
    ($which:literal) => {
        concat!(
            "
            update fsm_async_calls
            set state = 'executing', worker = $2, started_at = $4
            where (call_id, attempt) in (
                select c.call_id, c.attempt
                from fsm_async_calls c
                where ",
            due_in_sqlite!($which),
            "
            )
            returning call_id, attempt"
        )
    };
}

macro_rules! claim_in_postgres {
    ($which:literal) => {
        concat!(
            "with due as materialized (
                select d.call_id, d.attempt
                from fsm_async_calls d
                where d.machine = $1 and d.state = 'scheduled' and not d.held and d.scheduled_at <= $4 and d.verb = any($3::text[])
                    and d.call_id ",
            $which,
            "($6::text[]::uuid[])
                order by d.scheduled_at
                limit $5
                for update skip locked
            ),
            c as (
                update fsm_async_calls u
                set state = 'executing', worker = $2, started_at = $4
                from due
                where u.call_id = due.call_id and u.attempt = due.attempt
                returning u.*
            )
            select ",
            instance!(),
            ", ",
            attempt!(),
            call_and_attempt_before!(),
            has_timer!(),
            ", i.xmin::text::bigint
            from c
            join fsm_instances i on i.instance_id = c.instance_id
            order by c.scheduled_at"
        )
    };
}

/// Gives session `$2` the due attempts of machine `$1` for verbs `$3` at time `$4`, at most `$5`, the oldest first, but for those of the calls
/// `$6`. Rides the due index. PostgreSQL answers with everything; SQLite with the keys for `CLAIMED`.
pub const CLAIM: Sql = Sql { sqlite: claim_in_sqlite!("not in"), postgres: claim_in_postgres!("<> all") };

/// The same of the calls `$6` and no others. Rides the primary key.
pub const CLAIM_THESE: Sql = Sql { sqlite: claim_in_sqlite!("in"), postgres: claim_in_postgres!("= any") };

/// The calls and keys of what `CLAIM` would give, of whatever session `$2`. Rides the due index.
pub const CLAIMABLE: Sql = Sql {
    sqlite: concat!(
        "
        select c.call_id, (select i.key from fsm_instances i where i.instance_id = c.instance_id), $2
        from fsm_async_calls c
        where ",
        due_in_sqlite!("not in")
    ),
    postgres: "
        select c.call_id, (select i.key from fsm_instances i where i.instance_id = c.instance_id), $2::uuid
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.scheduled_at <= $4 and c.verb = any($3::text[])
            and c.call_id <> all($6::text[]::uuid[])
        order by c.scheduled_at
        limit $5",
};

/// Takes back what session `$2` claimed of the call `$1`. Rides the primary key.
pub const UNCLAIM: Sql = same(
    "
    update fsm_async_calls
    set state = 'scheduled', worker = null, started_at = null
    where call_id = $1 and state = 'executing' and worker = $2",
);

/// Each attempt with its instance, its payload, and why the one before it failed. Rides the primary keys.
pub const CLAIMED: Many = many(
    "call_id uuid, attempt bigint",
    concat!(
        "select ",
        instance!(),
        ", ",
        attempt!(),
        call_and_attempt_before!(),
        "
        from w
        join fsm_async_calls c on c.call_id = w.call_id and c.attempt = w.attempt
        join fsm_instances i on i.instance_id = c.instance_id"
    ),
);

/// When the first scheduled attempt of machine `$1` for verbs `$2` is due, but for the calls `$3`. Rides the due index.
pub const NEXT_CALL: Sql = Sql {
    sqlite: "
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.verb in (select value from json_each($2))
            and c.call_id not in (select unhex(value) from json_each($3))
        order by c.scheduled_at
        limit 1",
    postgres: "
        select c.scheduled_at
        from fsm_async_calls c
        where c.machine = $1 and c.state = 'scheduled' and not c.held and c.verb = any($2::text[])
            and c.call_id <> all($3::text[]::uuid[])
        order by c.scheduled_at
        limit 1",
};
