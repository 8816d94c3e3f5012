//! The sessions, transactions and notifications of PostgreSQL.

use super::statement::{Sql, same};

/// Returns whether the server is in recovery and whether this session is read-only. PostgreSQL only. Sent as plain text, because a pooler
/// may be in between.
pub const ROLE: &str = "select pg_is_in_recovery(), current_setting('transaction_read_only')::boolean";

/// Begins a transaction of the committer. It skips locked instances, so it rarely waits for a lock: only for a key that an open transaction
/// creates, or for a row of another table. The short lock timeout protects the other requests of the batch.
pub const BEGIN_COMMIT_POSTGRES: &str = "begin; set local lock_timeout = '250ms'; \
    set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off";

/// Begins a transaction. The lock timeout is short, because a process that hangs in a transaction keeps its locks until the server notices,
/// and only the requests for those instances should wait for it. The planner settings enforce index lookups, since every statement finds
/// its rows by a key: a plan made for empty tables or from outdated statistics may scan whole tables, and a prepared statement keeps such a
/// plan. No statement runs long enough for JIT compilation, but PostgreSQL estimates its cost without the limit.
pub const BEGIN_POSTGRES: &str = "begin; set local lock_timeout = '2s'; \
    set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off";

/// The same settings for a session whose statements commit by themselves. Planning these statements takes longer than executing them, so
/// their plans are generic. Bitmap scans are off because they read index entries of dead rows and, unlike plain index scans, do not mark
/// them as dead.
pub const PIN: &str = "set plan_cache_mode = force_generic_plan; set lock_timeout = '250ms'; \
    set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
    set enable_bitmapscan = off; set jit = off";

/// Resets the lock timeout and the planner settings of the session to the database's own.
pub const UNPIN: &str = "reset plan_cache_mode; reset lock_timeout; \
    reset enable_seqscan; reset enable_hashjoin; reset enable_mergejoin; \
    reset enable_bitmapscan; reset jit";

/// Discards the plans of prepared statements.
pub const FORGET_PLANS: &str = "discard plans";

/// The setting that marks a session as one of the library's own connections.
pub const MARK: &str = "fsm.direct";

/// Returns whether a connection of the library began the session.
pub const IS_MARKED: Sql = same("select coalesce(current_setting('fsm.direct', true) = 'on', false)");

/// Resets the lock timeout and the planner settings to the database's own for the rest of the transaction.
pub const AS_USUAL: &str = "set local plan_cache_mode to default; set local lock_timeout to default; \
    set local enable_seqscan to default; set local enable_hashjoin to default; set local enable_mergejoin to default; \
    set local enable_bitmapscan to default; set local jit to default";

/// Begins a transaction that reads one snapshot.
pub const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read, read only; set local idle_in_transaction_session_timeout = 0";

/// Begins a transaction that reads one snapshot, for statements that read whole tables.
pub const EXAMINE_POSTGRES: &str = "begin isolation level repeatable read, read only; \
    set local plan_cache_mode = force_custom_plan; set local jit = off";

/// Commits a transaction in which a user's statements ran. PostgreSQL answers the commit of a failed transaction with success, so a
/// statement that fails there is sent first.
pub const COMMIT_AFTER_USER: &str = "select 1; commit";

/// The schema in which a session's statements find their tables; null if the search path has none that exists.
pub const CURRENT_SCHEMA: Sql = same("select current_schema()::text, exists (select 1 from pg_namespace n where n.nspname = $1)");

/// The codes of `undefined_table` and `invalid_schema_name`.
pub const MISSING_CODES: [&str; 2] = ["42P01", "3F000"];

/// The channel of the notifications. In a partition, the name of the schema follows it.
pub const CHANNEL: &str = "fsm_due";

/// Notifies channel `$1`. Never in a transaction with other statements: the commit takes a lock that all notifying
/// transactions share.
pub const NOTIFY: Sql = same("select pg_notify($1, '')");
