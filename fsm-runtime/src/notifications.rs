//! Sends and receives wake-ups between processes. They are sent after commits, one for many commits, and may get lost.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;

use crate::engine::Engine;
use crate::error::Error;

/// The minimum time between two notifications. All commits in this time share one.
const BREATH: Duration = Duration::from_millis(5);
/// Work that is due later than this needs no notification; polling finds it.
const SOON: Duration = Duration::from_secs(1);
/// The waits before the polls for work from a caller's transaction.
const LOOKS: [Duration; 4] = [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];
/// The wait before a failed listener is opened again.
const DEAF: Duration = Duration::from_secs(1);

impl Engine {
    /// Requests a notification: a commit made work due at `due_at` that this process may not be able to start itself.
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

    /// Requests polls: a caller's transaction contains an event, and only the caller knows when it commits.
    pub(crate) fn notify_after_user_commit(&self) {
        self.pending_notifications.perhaps.notify_one();
    }

    /// Starts the tasks that notify other processes.
    pub(crate) fn start_notifying(self: &Arc<Self>) {
        self.keep_running("look for events in other transactions", Engine::watch_user_commits_loop);
        if self.store.is_postgres() {
            self.keep_running("wake-ups of other processes", Engine::notify_loop);
        }
    }

    /// Sends notifications until the engine ends.
    async fn notify_loop(self: Arc<Self>) {
        loop {
            // This wait has no limit: there may be nothing to notify.
            self.pending_notifications.certain.notified().await;
            if let Err(error) = self.store.notify().await {
                tracing::debug!(%error, "other processes were not notified; they find the work by polling");
            }
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Polls for work that was committed in callers' transactions, and notifies other processes to do the same.
    async fn watch_user_commits_loop(self: Arc<Self>) {
        let mut waits = LOOKS.iter();
        loop {
            match waits.next() {
                None => {
                    // This wait has no limit: there may be no such transaction.
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

    /// The next due time, after a notification. In a partition that this process does not prefer it is not read: others do, and this process
    /// looks later whether they have left work.
    async fn heard_next_due(&self) -> Result<Option<Timestamp>, Error> {
        match &self.work {
            Some(work) if !work.preference.is_preferred() => {
                work.preference.hear();
                Ok(None)
            }
            _ => {
                self.permit_state.has_waiting.notify_one();
                self.next_due().await
            }
        }
    }

    /// Reads the next due time whenever another process sends a notification.
    pub(crate) async fn listen_loop(self: Arc<Self>) {
        loop {
            match self.store.listen().await {
                Ok(None) => return,
                Ok(Some(mut listener)) => {
                    let cut_off = loop {
                        // The notification may be this process's own, or for others only. One may have been missed before the listener was
                        // open.
                        let next = self.heard_next_due().await;
                        match &next {
                            Ok(next) => next.iter().for_each(|next| self.wake_up.due(*next)),
                            Err(error) => {
                                tracing::debug!(%error, "the next due moment is not known after a notification, and is read again")
                            }
                        }
                        if let Err(error) = self.cancel_interrupted().await {
                            tracing::debug!(%error, "verbs that run here were not cancelled for events that interrupt them; the sweeper cancels them");
                        }
                        if next.is_err() {
                            // The connection may lead to a place that the partition has left, and the next one to where it is now.
                            tokio::time::sleep(DEAF).await;
                            continue;
                        }
                        tokio::time::sleep(BREATH).await;
                        if let Err(error) = listener.next_notification().await {
                            break error;
                        }
                    };
                    tracing::debug!(error = %cut_off, "the connection that listens for other processes was lost; it is opened again");
                }
                Err(error) => tracing::debug!(%error, "notifications cannot be received; work of other processes is found by polling"),
            }
            tokio::time::sleep(DEAF).await;
        }
    }
}
