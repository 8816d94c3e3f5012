//! Gives and takes word of what is due in other processes: after the commit, one word for many commits, and never more than a hint.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;

use crate::engine::Engine;

/// One word for all that is committed in this time.
const BREATH: Duration = Duration::from_millis(5);
/// What is due later is found by polling.
const SOON: Duration = Duration::from_secs(1);
/// When the end of somebody else's transaction is looked for, each after the one before.
const LOOKS: [Duration; 4] = [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];
/// The wait before an ear that failed is opened again.
const DEAF: Duration = Duration::from_secs(1);

impl Engine {
    /// A commit made something due at this moment which this process may not begin itself.
    pub(crate) fn give_word(&self, due_at: Timestamp) {
        let is_served_here = self.work.as_ref().is_some_and(|work| work.slots.available_permits() > 0);
        if !is_served_here && due_at <= self.clock.now() + SOON {
            self.notices.certain.notify_one();
        }
    }

    /// Somebody else's transaction has an event in it, and only they know when it is committed.
    pub(crate) fn give_word_perhaps(&self) {
        self.notices.perhaps.notify_one();
    }

    /// Starts what gives word.
    pub(crate) fn start_giving_word(self: &Arc<Self>) {
        self.keep_running("look for events in other transactions", Engine::look_for_lent_for_ever);
        if self.store.is_postgres() {
            self.keep_running("wake-ups of other processes", Engine::give_word_for_ever);
        }
    }

    /// Gives word, until the engine ends.
    async fn give_word_for_ever(self: Arc<Self>) {
        loop {
            // No bound: there may be nothing to tell.
            self.notices.certain.notified().await;
            if let Err(error) = self.store.give_word().await {
                tracing::debug!(%error, "other processes were not told; they find it by polling");
            }
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Looks, and lets others look, for what came with other people's transactions.
    async fn look_for_lent_for_ever(self: Arc<Self>) {
        let mut waits = LOOKS.iter();
        loop {
            match waits.next() {
                None => {
                    // No bound: there may be no such transaction.
                    self.notices.perhaps.notified().await;
                    waits = LOOKS.iter();
                    continue;
                }
                Some(wait) => tokio::select! {
                    () = tokio::time::sleep(*wait) => {}
                    () = self.notices.perhaps.notified() => waits = LOOKS.iter(),
                },
            }
            self.hint.due(self.clock.now());
            if self.work.is_none() {
                self.notices.certain.notify_one();
            }
        }
    }

    /// Looks whenever another process gives word.
    pub(crate) async fn listen_for_ever(self: Arc<Self>) {
        loop {
            match self.store.listen().await {
                Ok(None) => return,
                Ok(Some(mut ear)) => {
                    let cut_off = loop {
                        // It may be nothing for this process, or its own. Before the first word something may have been missed.
                        match self.next_due().await {
                            Ok(next) => next.into_iter().for_each(|next| self.hint.due(next)),
                            Err(error) => tracing::debug!(%error, "what is due after a word is not known; it is found by polling"),
                        }
                        tokio::time::sleep(BREATH).await;
                        if let Err(error) = ear.heard().await {
                            break error;
                        }
                    };
                    tracing::debug!(error = %cut_off, "the ear for other processes is cut off, and opened anew");
                }
                Err(error) => tracing::debug!(%error, "other processes are not heard; what they make due is found by polling"),
            }
            tokio::time::sleep(DEAF).await;
        }
    }
}
