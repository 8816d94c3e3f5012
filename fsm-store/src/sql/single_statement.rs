//! The guards of a small batch that PostgreSQL writes in one statement. It is decided without locks.

use super::statement::Many;

/// Locks each instance that still has this row version and this time of its last change. The time is compared because a server that lost
/// commits, in a crash or by a failover, uses their row versions again. A row that another transaction has locked counts as changed, so that
/// the rest of the batch does not wait for it. Uses the primary key.
pub const AT_VERSION: Many = Many {
    columns: "instance_id uuid, row_version bigint, updated_at bigint",
    sqlite: "",
    postgres: "
        select i.instance_id
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.row_version = w.row_version and i.updated_at = w.updated_at
        for update of i skip locked",
};

/// The condition that the instance of a row passed its guard. In this form PostgreSQL uses a hash table with any planner settings.
pub const IS_GOOD: &str = "(u.instance_id in (select good.instance_id from good)) is true";

/// The answer of the single statement in a user's transaction: whether it wrote.
pub const WROTE_IN_ONE: &str = "select good from outcome";

/// The answer of the single statement: the instances that it wrote.
pub const WROTE_SINGLE_STATEMENT: &str = "select good.instance_id from good";
