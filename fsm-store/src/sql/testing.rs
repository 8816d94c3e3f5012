//! What tests read.

use super::statement::{Sql, same};

/// Returns the number of rows of instances in all tables.
pub const ROWS_OF_INSTANCES: Sql = same(
    "
    select (select count(*) from fsm_instances) + (select count(*) from fsm_async_calls) + (select count(*) from fsm_inbox)
        + (select count(*) from fsm_timers) + (select count(*) from fsm_requests) + (select count(*) from fsm_once)
        + (select count(*) from fsm_history)
    ",
);

/// The time at which the first permit after `$1` was granted. Reads the whole table.
pub const PERMIT_FIRST: Sql = same("select min(p.granted_at) from fsm_limit_permits p where p.granted_at > $1");
