//! Whose turn it is to write in a SQLite file, to which one process writes at a time.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;

use super::error::is_busy;
use super::sql;
use super::unsaid::{Unsaid, sqlite_texts};

/// How long another process's transaction is waited for.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it takes until the next look.
const LOOK: Duration = Duration::from_millis(1);

/// A wait for one's turn. SQLite's own looks grow to 100 ms apart, and a process that commits again and again is always there sooner:
/// others would get no turn for as long as it has work.
pub(super) struct Turn(Instant);

impl Turn {
    /// From now on.
    pub(super) fn wanted() -> Turn {
        Turn(Instant::now())
    }

    /// Whether `error` says no more than that another process writes; then it is time to look again.
    pub(super) async fn is_to_come(&self, error: Option<&sqlx::Error>) -> bool {
        let is_to_come = error.is_some_and(is_busy) && self.0.elapsed() < BUSY_TIMEOUT;
        if is_to_come {
            tokio::time::sleep(LOOK).await;
        }
        is_to_come
    }
}

/// Begins a transaction that writes, when it is its turn.
pub(super) async fn begin(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    let turn = Turn::wanted();
    loop {
        let begun = sqlite_texts(conn, Unsaid::default(), sql::BEGIN_SQLITE).await;
        if !turn.is_to_come(begun.as_ref().err()).await {
            return begun;
        }
    }
}
