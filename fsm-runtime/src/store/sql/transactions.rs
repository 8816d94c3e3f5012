//! How transactions begin and end.

use super::{Sql, same};

/// Takes SQLite's one place to write at once, instead of at the first statement that writes.
pub const BEGIN_SQLITE: &str = "begin immediate";

/// Begins a commit of the committer's. Instances that others have locked are passed over, so that a lock in the way is a rare one: of a key
/// that an open transaction creates, or of another table's row. Those who wait for nothing wait no longer for it.
pub const BEGIN_COMMIT_POSTGRES: &str = "begin; set local lock_timeout = '250ms'; \
    set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off";

/// Begins. A lock that others hold for longer than that is not waited for: a process that hangs in the middle of a transaction keeps its
/// locks until the server finds out, and whoever wants nothing of its instances must not wait with those who do. And every statement of
/// ours finds its rows by a key: a plan made while the tables were empty, or by figures that are out of date, may read whole tables
/// instead, and a prepared statement keeps such a plan. Nor is any of them so long that it is worth compiling, which PostgreSQL judges by
/// how much it would do without its limit.
pub const BEGIN_POSTGRES: &str = "begin; set local lock_timeout = '2s'; \
    set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off";

/// The same for a session, whose statements commit by themselves. They are long, and planning one anew takes longer than carrying it out.
/// And a bitmap of an index holds what ended long ago, and does not strike it out as a plain walk does.
pub const PIN: &str = "set plan_cache_mode = force_generic_plan; set lock_timeout = '250ms'; \
    set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
    set enable_bitmapscan = off; set jit = off";

/// The session waits for locks and plans as the database's owner likes.
pub const UNPIN: &str = "reset plan_cache_mode; reset lock_timeout; \
    reset enable_seqscan; reset enable_hashjoin; reset enable_mergejoin; \
    reset enable_bitmapscan; reset jit";

/// Prepared statements are planned anew.
pub const FORGET_PLANS: &str = "discard plans";

/// What a connection of ours sets when it begins, and PostgreSQL keeps for its session.
pub const MARK: &str = "fsm.direct";

/// Whether the session is one that our connection began.
pub const IS_MARKED: Sql = same("select coalesce(current_setting('fsm.direct', true) = 'on', false)");

/// The rest of the transaction waits for locks as the database's owner likes.
pub const PATIENT: &str = "set local lock_timeout to default";

/// The rest of the transaction waits for locks and is planned as the database's owner likes.
pub const AS_USUAL: &str = "set local plan_cache_mode to default; set local lock_timeout to default; \
    set local enable_seqscan to default; set local enable_hashjoin to default; set local enable_mergejoin to default; \
    set local enable_bitmapscan to default; set local jit to default";

/// Begins to read what was there at one moment.
pub const SNAPSHOT_SQLITE: &str = "begin";

/// Begins to read what was there at one moment.
pub const SNAPSHOT_POSTGRES: &str = "begin isolation level repeatable read, read only";

/// Commits.
pub const COMMIT: &str = "commit";

/// Commits what somebody else's statements ran in: the commit of a failed transaction answers with success in PostgreSQL, so a statement
/// that fails in one is sent ahead.
pub const COMMIT_AFTER_USER: &str = "select 1; commit";

/// Ends the use of a transaction by somebody else's statements. It fails if they left the transaction failed, or ended it.
pub const RELEASE_LENT: &str = "release savepoint fsm_lent";

/// Gives up.
pub const ROLLBACK: &str = "rollback";
