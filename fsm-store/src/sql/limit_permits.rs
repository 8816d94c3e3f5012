//! Permits: the places that calls of other partitions have under the limits of this one.

use super::statement::{Many, Sql, many, same};

/// Grants permits, and returns the instances of those that were granted. An older permit of an instance is over and is replaced; one of the same or of a
/// newer row version stays. The transaction holds the lock of the limit. Uses the primary key.
pub const PERMIT_GRANT: Many = many(
    "instance_id uuid, bucket text, partition bigint, row_version bigint, granted_at bigint",
    "
    insert into fsm_limit_permits (instance_id, bucket, partition, row_version, granted_at)
    select *
    from w
    where true
    on conflict (instance_id) do update
    set bucket = excluded.bucket, partition = excluded.partition, row_version = excluded.row_version, granted_at = excluded.granted_at
    where fsm_limit_permits.row_version < excluded.row_version
    returning instance_id",
);

/// Deletes the permits of these instances in these buckets for row versions below `below`, and returns their buckets. Uses the primary key.
pub const PERMIT_RELEASE: Many = Many {
    columns: "instance_id uuid, bucket text, below bigint",
    sqlite: "
    delete from fsm_limit_permits
    where instance_id = w.instance_id and bucket = w.bucket and row_version < w.below
    returning bucket",
    postgres: "
    delete from fsm_limit_permits p
    using w
    where p.instance_id = w.instance_id and p.bucket = w.bucket and p.row_version < w.below
    returning p.bucket",
};

/// The permits of instances after `$1` that were granted before `$2`, in the order of the instances, at most `$3`. Uses the primary key.
pub const PERMITS_OLD: Sql = same(
    "
    select p.instance_id, p.partition, p.row_version, p.bucket
    from fsm_limit_permits p
    where p.instance_id > $1 and p.granted_at < $2
    order by p.instance_id
    limit $3",
);

/// Raises the row versions of these instances above those of their permits, unless they are higher or a call runs. A claim with these permits claims
/// nothing after that. Rows that are locked are left out. Uses the primary key.
pub const PERMIT_FENCE: Many = Many {
    columns: "instance_id uuid, row_version bigint",
    sqlite: "
    update fsm_instances
    set row_version = w.row_version + 1
    where instance_id = w.instance_id and row_version <= w.row_version and runs_under is null",
    postgres: ",
    free as materialized (
        select i.instance_id, w.row_version
        from w
        join fsm_instances i on i.instance_id = w.instance_id and i.row_version <= w.row_version and i.runs_under is null
        for update of i skip locked
    )
    update fsm_instances u
    set row_version = free.row_version + 1
    from free
    where u.instance_id = free.instance_id",
};

/// The row version of each of these instances, and the bucket under which it executes a call. Instances that do not exist are left out. Uses the
/// primary key.
pub const PERMIT_ROWS: Many = many(
    "instance_id uuid",
    "
    select i.instance_id, i.row_version, i.runs_under
    from w
    join fsm_instances i on i.instance_id = w.instance_id",
);
