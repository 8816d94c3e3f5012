//! The table of applied migrations.

use super::statement::{Sql, same};

/// Takes the lock of migrations until the transaction ends, so that one process migrates at a time. Each schema has its own
/// lock, because an import has a transaction in each partition. On SQLite the transaction itself is that lock.
pub const MIGRATION_LOCK: Sql = Sql {
    sqlite: "select 1",
    postgres: "
        select 1
        from (
            select pg_advisory_xact_lock(7306084201913251117 # hashtextextended(coalesce(current_schema(), ''), 0))
        ) as locked",
};

/// Creates the table of applied migrations.
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

/// Returns a row if the table of applied migrations exists.
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

/// The applied migrations.
pub const MIGRATIONS: Sql = same(
    "
    select m.version, m.checksum, m.name, m.applied_at
    from fsm_migrations m
    order by m.version",
);

/// Records that migration `$1` of name `$2` with checksum `$3` was applied at `$4`.
pub const MIGRATED: Sql = same(
    "
    insert into fsm_migrations (version, name, checksum, applied_at)
    values ($1, $2, $3, $4)",
);

/// The same statement with its values, for scripts that operators run. The names come from this crate and need no escaping.
pub fn migrated(version: i64, name: &str, checksum: i64, at_us: i64) -> String {
    format!("insert into fsm_migrations (version, name, checksum, applied_at) values ({version}, '{name}', {checksum}, {at_us});")
}
