//! Delivers the events that wait in the outbox, each line when it is due. Any worker that has the receiver's machine does it.

use std::sync::Arc;

use fsm_core::time::Timestamp;
use futures_util::future::join_all;

use crate::committer::request::{InstanceKey, Reply, Request, RequestKind};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::outbox::{self, Line};

/// The most lines of a machine that are looked at.
const LINES: u32 = 64;

impl Engine {
    /// Looks whenever a line comes due, and at least at every poll interval.
    pub(crate) async fn outbox_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        while self.may_start() {
            let next = match self.deliver_due().await {
                Ok((next, has_failed)) => next.filter(|_| !has_failed),
                Err(error) => {
                    tracing::warn!(%error, "the outbox cannot be delivered, and this is tried again");
                    None
                }
            };
            let wait = next.and_then(|next| self.clock.until(next)).unwrap_or(work.poll).min(work.poll);
            // A wait that fails shows nothing but that it is time.
            let _ = tokio::time::timeout(wait, self.has_line.notified()).await;
        }
    }

    /// Delivers the lines that are due. Gives when the next one is, and whether one could not be delivered.
    async fn deliver_due(self: &Arc<Self>) -> Result<(Option<Timestamp>, bool), Error> {
        let now = self.clock.now();
        let (due, later): (Vec<_>, Vec<_>) = self.lines().await?.into_iter().partition(|line| line.due_at <= now);
        let delivered = join_all(due.iter().map(|line| self.deliver(line))).await;
        let next = later.iter().map(|line| line.due_at).min();
        let has_failed = delivered.iter().any(Result::is_err);
        // The next look tells the outcome for those that were due.
        Ok((if due.is_empty() { next } else { Some(now) }, has_failed))
    }

    /// Delivers every line without a wait for its time. Gives how many events were taken or refused.
    #[cfg(feature = "testing")]
    pub(crate) async fn deliver_all(self: &Arc<Self>) -> Result<usize, Error> {
        let mut events = 0;
        for line in self.lines().await? {
            events += self.deliver(&line).await? as usize;
        }
        Ok(events)
    }

    async fn lines(&self) -> Result<Vec<Line>, Error> {
        let Some(work) = &self.work else { return Ok(Vec::new()) };
        let mut reader = self.looker().await?;
        Ok(outbox::due(&mut reader.conn(), work.served.iter().map(|served| served.machine.as_str()), LINES).await?)
    }

    async fn deliver(self: &Arc<Self>, line: &Line) -> Result<u32, Error> {
        let target = InstanceKey::new(&line.machine, &line.key);
        match self.request(|reply| Request::new(target, RequestKind::Deliver, Some(reply))).await {
            Ok(Reply::Delivered { events }) => Ok(events),
            Ok(_) => Ok(0),
            Err(error) => {
                tracing::debug!(machine = line.machine, key = line.key, %error, "a line of the outbox cannot be delivered yet");
                Err(error)
            }
        }
    }
}
