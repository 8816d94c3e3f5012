//! Due timers.

use super::statement::{Sql, same};

/// The due time of the first timer of machine `$1`: of a state of `$2`, a delayed event of `$3`, or a wake for such an event in a state of
/// `$4`, except for the timers `$5`. Uses the due index of timers.
pub const NEXT_TIMER: Sql = Sql {
    sqlite: "
        select t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
            and (
                t.event = 'Timeout' and t.state in (select value from json_each($2))
                or t.event in (select value from json_each($3)) and (t.state is null or t.event <> 'Timeout' and t.state in (select value from json_each($4)))
            )
            and t.timer_id not in (select unhex(value) from json_each($5))
        order by t.due_at
        limit 1",
    postgres: "
        select t.due_at
        from fsm_timers t
        where t.machine = $1 and not t.held
            and (
                t.event = 'Timeout' and t.state = any($2::text[])
                or t.event = any($3::text[]) and (t.state is null or t.event <> 'Timeout' and t.state = any($4::text[]))
            )
            and t.timer_id <> all($5::text[]::uuid[])
        order by t.due_at
        limit 1",
};

macro_rules! timers_due {
    ($sqlite:literal, $postgres:literal) => {
        Sql {
            sqlite: concat!(
                "select t.machine, i.key, ",
                timer!(),
                "
                from fsm_timers t
                join fsm_instances i on i.instance_id = t.instance_id
                where t.machine = $1 and not t.held and t.due_at <= $2
                    and (
                        t.event = 'Timeout' and t.state in (select value from json_each($4))
                        or t.event in (select value from json_each($5))
                            and (t.state is null or t.event <> 'Timeout' and t.state in (select value from json_each($6)))
                    )
                    and t.timer_id ",
                $sqlite,
                " (select unhex(value) from json_each($7))
                order by t.due_at
                limit $3"
            ),
            postgres: concat!(
                "select t.machine, i.key, ",
                timer!(),
                "
                from fsm_timers t
                join fsm_instances i on i.instance_id = t.instance_id
                where t.machine = $1 and not t.held and t.due_at <= $2
                    and (
                        t.event = 'Timeout' and t.state = any($4::text[])
                        or t.event = any($5::text[]) and (t.state is null or t.event <> 'Timeout' and t.state = any($6::text[]))
                    )
                    and t.timer_id ",
                $postgres,
                "($7::text[]::uuid[])
                order by t.due_at
                limit $3"
            ),
        }
    };
}

/// The timers of machine `$1` that are due at `$2`, at most `$3`, the earliest first: of a state of `$4`, a delayed event of `$5`, or a
/// wake for such an event in a state of `$6`, except for the timers `$7`. Uses the due index of timers.
pub const TIMERS_DUE: Sql = timers_due!("not in", "<> all");

/// The same, only of the timers `$7`. Uses the primary key.
pub const THESE_TIMERS_DUE: Sql = timers_due!("in", "= any");

/// Any two of the timers of instance `$1`. They show if it has another timer beside a known one. Uses the index by instance.
pub const TIMERS_BESIDE: Sql = same(
    "
    select t.timer_id
    from fsm_timers t
    where t.instance_id = $1
    limit 2",
);
