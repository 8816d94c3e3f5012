//! Reads of callers. They are repeated while the database cannot be used.

use std::time::Instant;

use fsm_store::error::Class;

use crate::committer::retry::backoff;
use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Calls `look`, and again after a backoff while its error may pass, until the caller's patience ends. Then the last error is returned. Each
    /// call is limited by the operation timeout, so all of them take at most the patience and that timeout.
    pub(crate) async fn read<T, F>(&self, look: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (begun, mut tries) = (Instant::now(), 0);
        loop {
            let error = match look().await {
                Err(error) if error.may_pass() => error,
                done => return done,
            };
            let wait = backoff(Class::Unavailable, tries);
            if begun.elapsed().saturating_add(wait) >= self.limits.patience {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }
}
