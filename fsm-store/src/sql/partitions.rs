//! The directory of partitions, and what a partition says about itself. PostgreSQL only.

use super::statement::{Sql, same};

/// Returns whether the schema has a directory, whether it is a partition, and whether it has tables of instances. It reads the catalogue itself:
/// after a wait for a lock, `to_regclass` may still answer from before the wait. Uses the index of names.
pub const PARTITION_TABLES: Sql = same(
    "
    select coalesce(bool_or(c.relname = 'fsm_partitions'), false), coalesce(bool_or(c.relname = 'fsm_partition'), false),
        coalesce(bool_or(c.relname = 'fsm_instances'), false)
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where c.relname in ('fsm_partitions', 'fsm_partition', 'fsm_instances') and n.nspname = any (current_schemas(false))",
);

/// The partitions of the directory, by number.
pub const PARTITIONS: Sql = same(
    "
    select p.partition, p.schema, p.url, p.place_number, p.moving_to
    from fsm_partitions p
    order by p.partition",
);

/// Creates the directory. The place number counts the places that the partition has had.
pub const DIRECTORY_TABLE: &str = "
    create table fsm_partitions (
        partition bigint not null primary key,
        schema text not null,
        url text,
        place_number bigint not null default 1,
        moving_to text
    )";

/// Adds partition `$1`, with schema `$2` and URL `$3`, to the directory.
pub const PARTITION_ADD: Sql = same(
    "
    insert into fsm_partitions (partition, schema, url)
    values ($1, $2, $3)",
);

/// The number of this partition, the number of all, and the number of this place.
pub const PARTITION: Sql = same("select p.partition, p.partitions, p.place_number from fsm_partition p");

/// Sets the search path of the session to `$1` and its lock timeout to `$2` milliseconds.
pub const ENTER_SCHEMA: Sql = same("select set_config('search_path', $1, false), set_config('lock_timeout', $2, false)");

/// Creates the table in which a partition says which one it is.
pub const PARTITION_TABLE: &str = "
    create table fsm_partition (
        partition bigint not null,
        partitions bigint not null,
        place_number bigint not null
    )";

/// Says that this is partition `$1` of `$2`, with place number `$3`.
pub const PARTITION_IS: Sql = same(
    "
    insert into fsm_partition (partition, partitions, place_number)
    values ($1, $2, $3)",
);

/// The keys of the instances after the key `$1` of machine `$2`, at most `$3`. Uses the index of keys.
pub const KEYS_AFTER: Sql = same(
    "
    select i.key
    from fsm_instances i
    where i.machine = $2 and i.key > $1
    order by i.key
    limit $3",
);

/// Names the schema `$1` for [`CREATE_SCHEMA`], for this transaction.
pub const NAME_SCHEMA: Sql = same("select set_config('fsm.schema', $1, true)");

/// Creates the schema that was named, if it does not exist. A statement that creates takes no parameter.
pub const CREATE_SCHEMA: &str = "
    do $$ begin
        execute format('create schema if not exists %I', current_setting('fsm.schema'));
    end $$";
