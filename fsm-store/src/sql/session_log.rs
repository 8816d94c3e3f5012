//! The session log: the instances in which a session began attempts.

use super::statement::{Many, Sql, many, same};

/// Records that the session began attempts in these instances.
pub const LOG_PUT: Many = many(
    "session_id uuid, number bigint, instances bytea",
    "
    insert into fsm_session_log (session_id, number, instances)
    select *
    from w",
);

/// The first `$3` rows of session `$1` after number `$2`. Uses the primary key.
pub const LOG_ROWS: Sql = same(
    "
    select l.number, l.instances
    from fsm_session_log l
    where l.session_id = $1 and l.number > $2
    order by l.number
    limit $3",
);

/// Deletes these rows. Uses the primary key.
pub const LOG_DELETE: Many = Many {
    columns: "session_id uuid, number bigint",
    sqlite: "delete from fsm_session_log where (session_id, number) in (select w.session_id, w.number from w)",
    postgres: "delete from fsm_session_log as l using w where l.session_id = w.session_id and l.number = w.number",
};

macro_rules! log_sessions {
    ($first:literal, $next:literal) => {
        concat!(
            "
            with recursive s (session_id) as (
                ",
            $first,
            "
                union all
                select ",
            $next,
            "
                from s
                where s.session_id is not null
            )
            select s.session_id
            from s
            left join fsm_workers w on w.session_id = s.session_id
            where s.session_id is not null and (w.session_id is null or w.lease_until <= $1)"
        )
    };
}

/// The sessions that have a log but no row, or whose lease has ended at `$1`. Uses the primary key, from each session to the next.
pub const LOG_SESSIONS: Sql = Sql {
    sqlite: log_sessions!(
        "select min(l.session_id) from fsm_session_log l",
        "(select min(l.session_id) from fsm_session_log l where l.session_id > s.session_id)"
    ),
    postgres: log_sessions!(
        "(select l.session_id from fsm_session_log l order by l.session_id limit 1)",
        "(select l.session_id from fsm_session_log l where l.session_id > s.session_id order by l.session_id limit 1)"
    ),
};

/// The instances of `w` in which the session of the same row executes an attempt. Uses the primary key.
pub const EXECUTING: Many = many(
    "instance_id uuid, session_id uuid",
    concat!(
        "select ",
        instance!(),
        "
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.attempt_state = 'executing' and i.worker = w.session_id"
    ),
);

/// The id of the instance at position `$2`, from 0, of all instances after `$1`. Uses the primary key.
pub const SCAN_END: Sql = same(
    "
    select n.instance_id
    from fsm_instances n
    where n.instance_id > $1
    order by n.instance_id
    limit 1
    offset $2",
);

/// The instances after `$1` up to `$2` that execute an attempt in a session that has no row or whose lease has ended at `$3`. Uses the
/// primary key.
pub const UNLISTED: Sql = same(concat!(
    "select ",
    instance!(),
    "
    from fsm_instances i
    where i.instance_id > $1 and i.instance_id <= $2 and i.attempt_state = 'executing'
        and not exists (select 1 from fsm_workers k where k.session_id = i.worker and k.lease_until > $3)"
));
