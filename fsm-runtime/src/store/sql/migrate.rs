//! The migrations that were applied.

use super::{Sql, same};

/// One process migrates at a time: a lock that ends with the transaction. SQLite's transaction is that lock already.
pub const MIGRATION_LOCK: Sql =
    Sql { sqlite: "select 1", postgres: "select 1 from (select pg_advisory_xact_lock(7306084201913251117)) as locked" };

/// The table of the migrations that were applied.
pub const MIGRATION_TABLE: Sql = Sql {
    sqlite: "
        create table if not exists fsm_migrations (
            version integer not null primary key,
            name text not null,
            checksum integer not null,
            applied_at integer not null
        ) strict",
    postgres: "
        create table if not exists fsm_migrations (
            version bigint not null primary key,
            name text not null,
            checksum bigint not null,
            applied_at bigint not null
        )",
};

/// A row if there is a table of the migrations that were applied.
pub const MIGRATION_TABLE_EXISTS: Sql = Sql {
    sqlite: "
        select s.name
        from sqlite_schema s
        where s.type = 'table' and s.name = 'fsm_migrations'",
    postgres: "
        select c.relname::text
        from pg_class c
        where c.oid = to_regclass('fsm_migrations')",
};

/// The migrations that were applied.
pub const MIGRATIONS: Sql = same(
    "
    select m.version, m.checksum, m.name, m.applied_at
    from fsm_migrations m
    order by m.version",
);

/// Migration `$1` of name `$2` with checksum `$3` was applied at `$4`.
pub const MIGRATED: Sql = same(
    "
    insert into fsm_migrations (version, name, checksum, applied_at)
    values ($1, $2, $3, $4)",
);

/// The same as a text, for scripts that people run themselves. The name is one of ours.
pub fn migrated(version: i64, name: &str, checksum: i64, at_us: i64) -> String {
    format!("insert into fsm_migrations (version, name, checksum, applied_at) values ({version}, '{name}', {checksum}, {at_us});")
}
