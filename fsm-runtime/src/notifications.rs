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
    pub(crate) fn notify(&self, due_at: Timestamp) {
        let is_served_here = self.work.as_ref().is_some_and(|work| work.slots.available_permits() > 0);
        if !is_served_here && due_at <= self.clock.now() + SOON {
            self.pending_notifications.certain.notify_one();
        }
    }

    /// An event waits that interrupts an executing attempt, which may run in another process.
    pub(crate) fn notify_interrupt(&self) {
        self.pending_notifications.certain.notify_one();
    }

    /// Somebody else's transaction has an event in it, and only they know when it is committed.
    pub(crate) fn notify_after_user_commit(&self) {
        self.pending_notifications.perhaps.notify_one();
    }

    /// Starts what gives word.
    pub(crate) fn start_notifying(self: &Arc<Self>) {
        self.keep_running("look for events in other transactions", Engine::watch_user_commits_loop);
        if self.store.is_postgres() {
            self.keep_running("wake-ups of other processes", Engine::notify_loop);
        }
    }

    /// Gives word, until the engine ends.
    async fn notify_loop(self: Arc<Self>) {
        loop {
            // No bound: there may be nothing to tell.
            self.pending_notifications.certain.notified().await;
            if let Err(error) = self.store.notify().await {
                tracing::debug!(%error, "other processes were not told; they find it by polling");
            }
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Looks, and lets others look, for what came with other people's transactions.
    async fn watch_user_commits_loop(self: Arc<Self>) {
        let mut waits = LOOKS.iter();
        loop {
            match waits.next() {
                None => {
                    // No bound: there may be no such transaction.
                    self.pending_notifications.perhaps.notified().await;
                    waits = LOOKS.iter();
                    continue;
                }
                Some(wait) => tokio::select! {
                    () = tokio::time::sleep(*wait) => {}
                    () = self.pending_notifications.perhaps.notified() => waits = LOOKS.iter(),
                },
            }
            self.wake_up.due(self.clock.now());
            if self.work.is_none() {
                self.pending_notifications.certain.notify_one();
            }
        }
    }

    /// Looks whenever another process gives word.
    pub(crate) async fn listen_loop(self: Arc<Self>) {
        loop {
            match self.store.listen().await {
                Ok(None) => return,
                Ok(Some(mut ear)) => {
                    let cut_off = loop {
                        // It may be nothing for this process, or its own. Before the first word something may have been missed.
                        match self.next_due().await {
                            Ok(next) => next.into_iter().for_each(|next| self.wake_up.due(next)),
                            Err(error) => tracing::debug!(%error, "what is due after a word is not known; it is found by polling"),
                        }
                        if let Err(error) = self.tell_interrupted().await {
                            tracing::debug!(%error, "verbs that run here were not told of events that interrupt them; the sweeper tells them");
                        }
                        tokio::time::sleep(BREATH).await;
                        if let Err(error) = ear.next_notification().await {
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
