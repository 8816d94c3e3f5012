//! The database itself: its role, settings, clock and size.

use super::statement::{Sql, same};

/// The names and values of the settings that affect durability.
pub const SETTINGS: Sql = Sql {
    sqlite: "
        select 'sqlite_version', sqlite_version()
        union all
        select 'journal_mode', j.journal_mode
        from pragma_journal_mode j",
    postgres: "
        select s.name, s.setting
        from pg_settings s
        where s.name in ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes')
        union all
        select 'in_recovery', pg_is_in_recovery()::text
        order by 1",
};

/// Checks SQLite's file and returns what is wrong with it, or `ok`. Reads the whole file. PostgreSQL has no such check.
pub const FILE_CHECK: Sql = Sql {
    sqlite: "
        select q.quick_check
        from pragma_quick_check q",
    postgres: "select 'ok'",
};

/// The start of the oldest transaction of another session whose snapshot prevents PostgreSQL from vacuuming old rows. SQLite returns null.
pub const OLDEST_SNAPSHOT: Sql = Sql {
    sqlite: "select cast(null as integer)",
    postgres: "
        select (min(extract(epoch from a.xact_start)) * 1000000)::bigint
        from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid()",
};

/// The approximate number of rows.
pub const ROWS_ABOUT: Sql = Sql {
    sqlite: "select (select max(i.rowid) from fsm_instances i) + (select max(c.rowid) from fsm_async_calls c)",
    postgres: "
        select sum(c.reltuples)::bigint
        from pg_class c
        where c.oid in (to_regclass('fsm_instances'), to_regclass('fsm_async_calls')) and c.reltuples >= 0",
};

/// PostgreSQL's clock and the start of the server, in microseconds since 1970. No other SQL reads the time.
pub const SERVER_CLOCK: Sql = same(
    "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint",
);
