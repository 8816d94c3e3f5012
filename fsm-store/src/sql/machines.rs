//! The stored definitions of machines, and the memoised effects of calls.

use super::statement::{Sql, same};

/// All definitions of all machines. The last of each machine is the one that was started last. Reads the whole table, which has few rows.
pub const MACHINES: Sql = same(
    "
    select m.machine, m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    order by m.machine, m.last_seen_at, m.first_seen_at, m.hash",
);

/// Records that machine `$1` was started with hash `$2` and definition `$3` at `$4`. Uses the primary key.
pub const REMEMBER: Sql = same(
    "
    insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
    values ($1, $2, $3, $4, $4)
    on conflict (machine, hash) do update
    set last_seen_at = excluded.last_seen_at
    where fsm_machines.last_seen_at < excluded.last_seen_at",
);

/// All definitions of machine `$1`. The last is the one that was started last. Uses the primary key.
pub const DEFINITIONS: Sql = same(
    "
    select m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    where m.machine = $1
    order by m.last_seen_at, m.first_seen_at, m.hash",
);

/// The result of the memoised effect `$2` of call `$1`. Uses the primary key.
pub const ONCE_GET: Sql = same(
    "
    select o.value
    from fsm_once o
    where o.call_id = $1 and o.name = $2",
);

/// Stores the result `$3` of the memoised effect `$2` of call `$1` of instance `$5` at `$4`, unless it has one already.
pub const ONCE_PUT: Sql = same(
    "
    insert into fsm_once (call_id, name, instance_id, value, created_at)
    values ($1, $2, $5, $3, $4)
    on conflict (call_id, name) do nothing
    returning name",
);
