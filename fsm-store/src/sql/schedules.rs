//! The schedules that programs declare.

use super::statement::{Sql, same};

/// All schedules, by name. Reads the whole table, which has few rows.
pub const SCHEDULES: Sql = same(
    "
    select s.name, s.machine, s.timetable, s.zone, s.missed, s.declared_at, s.next_at, s.paused, s.last_at, s.last_key, s.failed_at,
        s.error, s.requested_at, s.actor
    from fsm_schedules s
    order by s.name",
);

/// The schedule `$1`. Uses the primary key.
pub const SCHEDULE: Sql = same(
    "
    select s.name, s.machine, s.timetable, s.zone, s.missed, s.declared_at, s.next_at, s.paused, s.last_at, s.last_key, s.failed_at,
        s.error, s.requested_at, s.actor
    from fsm_schedules s
    where s.name = $1",
);

/// Adds the schedule `$1` with the definition `$2`…`$5`, declared at `$6`, whose first moment is `$7`. Does nothing if there is one of that
/// name.
pub const SCHEDULE_ADD: Sql = same(
    "
    insert into fsm_schedules (name, machine, timetable, zone, missed, declared_at, next_at, paused)
    values ($1, $2, $3, $4, $5, $6, $7, $8)
    on conflict (name) do nothing
    returning name",
);

/// Gives the schedule `$1` the definition `$2`…`$5`, declared at `$6`, and the next moment `$7`, if its next moment is still `$8`. Uses the
/// primary key.
pub const SCHEDULE_DEFINE: Sql = same(
    "
    update fsm_schedules
    set machine = $2, timetable = $3, zone = $4, missed = $5, declared_at = $6, next_at = $7
    where name = $1 and next_at is not distinct from $8
    returning name",
);

/// Records that a worker declares the schedule `$1` at `$2`. Uses the primary key.
pub const SCHEDULE_DECLARED: Sql = same(
    "
    update fsm_schedules
    set declared_at = $2
    where name = $1 and declared_at < $2",
);

/// Moves the schedule `$1` with the definition `$2`…`$5` from the moment `$6` to the moment `$7`. Returns no row if another process has moved
/// or changed it, or if it is paused. Uses the primary key.
pub const SCHEDULE_ADVANCE: Sql = same(
    "
    update fsm_schedules
    set next_at = $7
    where name = $1 and machine = $2 and timetable = $3 and zone = $4 and missed = $5 and next_at = $6 and not paused
    returning name",
);

/// Takes the request of `$6` to send an event of the schedule `$1` with the definition `$2`…`$5` now. Returns no row if another process has
/// taken it. Uses the primary key.
pub const SCHEDULE_TAKE: Sql = same(
    "
    update fsm_schedules
    set requested_at = null
    where name = $1 and machine = $2 and timetable = $3 and zone = $4 and missed = $5 and requested_at = $6
    returning name",
);

/// Records that the schedule `$1` sent the moment `$2` to the instance with key `$3`. Uses the primary key.
pub const SCHEDULE_SENT: Sql = same(
    "
    update fsm_schedules
    set last_at = $2, last_key = $3
    where name = $1",
);

/// Records the reason `$3` why the schedule `$1` did not send the moment `$2`. Uses the primary key.
pub const SCHEDULE_FAILED: Sql = same(
    "
    update fsm_schedules
    set failed_at = $2, error = $3
    where name = $1",
);

/// Pauses the schedule `$1` by `$2`. Returns no row if it is paused. Uses the primary key.
pub const SCHEDULE_PAUSE: Sql = same(
    "
    update fsm_schedules
    set paused = true, actor = $2
    where name = $1 and not paused
    returning name",
);

/// Resumes the schedule `$1` by `$2`, with the next moment `$3`. Returns no row if it is not paused. Uses the primary key.
pub const SCHEDULE_RESUME: Sql = same(
    "
    update fsm_schedules
    set paused = false, actor = $2, next_at = $3
    where name = $1 and paused
    returning name",
);

/// Stores the request of `$3` by `$2` to send an event of the schedule `$1`. Returns no row if a request waits. Uses the primary key.
pub const SCHEDULE_REQUEST: Sql = same(
    "
    update fsm_schedules
    set requested_at = $3, actor = $2
    where name = $1 and requested_at is null
    returning name",
);

/// Deletes the schedule `$1` if no worker has declared it since `$2`. Uses the primary key.
pub const SCHEDULE_FORGET: Sql = same(
    "
    delete from fsm_schedules
    where name = $1 and declared_at < $2
    returning name",
);
