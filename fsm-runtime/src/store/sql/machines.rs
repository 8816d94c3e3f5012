//! Definitions that were started, and effects that calls remember.

use super::{Sql, same};

/// Every definition of every machine, the one that was started last last. Few rows, read whole.
pub const MACHINES: Sql = same(
    "
    select m.machine, m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    order by m.machine, m.last_seen_at, m.first_seen_at, m.hash",
);

/// Machine `$1` was started with hash `$2` and definition `$3` at `$4`.
pub const REMEMBER: Sql = same(
    "
    insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)
    values ($1, $2, $3, $4, $4)
    on conflict (machine, hash) do update
    set last_seen_at = excluded.last_seen_at
    where fsm_machines.last_seen_at < excluded.last_seen_at",
);

/// Every definition of machine `$1`, the one that was started last last. Rides the primary key.
pub const DEFINITIONS: Sql = same(
    "
    select m.hash, m.definition, m.first_seen_at, m.last_seen_at
    from fsm_machines m
    where m.machine = $1
    order by m.last_seen_at, m.first_seen_at, m.hash",
);

/// What call `$1` remembers under name `$2`. Rides the primary key.
pub const ONCE_GET: Sql = same(
    "
    select o.value
    from fsm_once o
    where o.call_id = $1 and o.name = $2",
);

/// Call `$1` remembers under name `$2` the value `$3` since `$4`, unless it remembers one already.
pub const ONCE_PUT: Sql = same(
    "
    insert into fsm_once (call_id, name, value, created_at)
    values ($1, $2, $3, $4)
    on conflict (call_id, name) do nothing
    returning name",
);
