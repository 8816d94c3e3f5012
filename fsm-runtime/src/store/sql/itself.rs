//! What the database says of itself, its clock and its size, and word of others' commits.

use super::{Sql, same};

/// Whether the server is in recovery, and whether this session's transactions may not write. PostgreSQL only, sent as plain text because a
/// connection may be one of a pooler.
pub const ROLE: &str = "select pg_is_in_recovery(), current_setting('transaction_read_only')::boolean";

/// Which SQLite is linked.
pub const SQLITE_VERSION: Sql = same("select sqlite_version()");

/// What the database says of itself that bears on durability: names and values.
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

/// What SQLite finds wrong with its file, or `ok`. Reads the whole file. PostgreSQL has nothing like it.
pub const FILE_CHECK: Sql = Sql {
    sqlite: "
        select q.quick_check
        from pragma_quick_check q",
    postgres: "select 'ok'",
};

/// Since when the oldest snapshot of another session keeps PostgreSQL from clearing away old rows. SQLite does not say.
pub const OLDEST_SNAPSHOT: Sql = Sql {
    sqlite: "select cast(null as integer)",
    postgres: "
        select (min(extract(epoch from a.xact_start)) * 1000000)::bigint
        from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid()",
};

/// How many rows there are about.
pub const ROWS_ABOUT: Sql = Sql {
    sqlite: "select (select max(i.rowid) from fsm_instances i) + (select max(c.rowid) from fsm_async_calls c)",
    postgres: "
        select sum(c.reltuples)::bigint
        from pg_class c
        where c.oid in (to_regclass('fsm_instances'), to_regclass('fsm_async_calls')) and c.reltuples >= 0",
};

/// PostgreSQL's clock and the start of the server, in microseconds since 1970: the only SQL that asks for time.
pub const SERVER_CLOCK: Sql = same(
    "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint, (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint",
);

/// Gives word on channel `$1`. PostgreSQL only, and never in a transaction with anything else: to commit it takes a lock that all who
/// give word share.
pub const NOTIFY: Sql = same("select pg_notify($1, '')");

/// A number that another connection's commit changes. SQLite only.
pub const DATA_VERSION: Sql = same("pragma data_version");
