//! Delivers the events that wait in the outbox, each line when it is due. Any worker that has the receiver's machine does it.
//!
//! A line that cannot be delivered is left out and retried with backoff, so that it does not stop the others.

use std::collections::HashSet;
use std::sync::Arc;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::{Reply, RequestKind};
use fsm_core::time::Timestamp;
use fsm_store::outbox::{self, Line};
use futures_util::future::join_all;

use crate::committer::request::Request;
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::longest;
use crate::preference::Turn;

/// The maximum number of lines of a machine that one scan reads, besides those that failed.
const LINES: usize = 64;

/// The result of one scan of the outbox.
#[derive(Default)]
struct ScanResult {
    /// The events that were taken or refused.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only a test bed waits until nothing is left"))]
    events: usize,
    /// The time of the next scan, if it is known.
    next: Option<Timestamp>,
}

impl Engine {
    /// Scans whenever a line comes due, and at least at every poll interval.
    pub(crate) async fn outbox_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        while self.may_start() {
            let now = self.clock.now();
            let result = self.deliver_due(now, now).await.unwrap_or_else(|error| {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the outbox cannot be read, and this is tried again");
                }
                ScanResult::default()
            });
            let poll = work.preference.poll(Turn::Outbox);
            let wait = result.next.and_then(|next| self.clock.until(next)).unwrap_or(poll).min(poll);
            // Without a notification in this time, the loop scans by itself.
            let _ = tokio::time::timeout(wait, self.has_line.notified()).await;
        }
    }

    /// Delivers every line at once, also one that is not due yet, and returns the number of events that were taken or refused.
    #[cfg(feature = "testing")]
    pub(crate) async fn deliver_all(self: &Arc<Self>) -> Result<usize, Error> {
        Ok(self.deliver_due(self.clock.now(), Timestamp::MAX).await?.events)
    }

    /// Delivers the lines that are due at `until`. A line that fails does not affect the others.
    async fn deliver_due(self: &Arc<Self>, now: Timestamp, until: Timestamp) -> Result<ScanResult, Error> {
        let Some(work) = &self.work else { return Ok(ScanResult::default()) };
        let failing = &work.failures.lines;
        let left_out: HashSet<_> = failing.waiting(now).into_iter().collect();
        let lines = self.lines(LINES + failing.all().len()).await?;
        // A line that another process has delivered is none any more.
        let is_there: HashSet<_> = lines.iter().map(receiver).collect();
        failing.due(now, usize::MAX).into_iter().filter(|line| !is_there.contains(line)).for_each(|line| failing.passed(line));
        let wanted = lines.into_iter().filter(|line| !left_out.contains(&receiver(line)));
        let (due, later): (Vec<_>, Vec<_>) = wanted.partition(|line| line.due_at <= until);
        let delivered = join_all(due.iter().map(|line| self.deliver(line, now))).await;
        let events = delivered.iter().flatten().map(|events| *events as usize).sum();
        // A line that was delivered in part is due again, and the next scan reads its time.
        let again = delivered.iter().any(Option::is_some).then_some(now);
        let next = [again, later.iter().map(|line| line.due_at).min(), failing.next()].into_iter().flatten().min();
        Ok(ScanResult { events, next })
    }

    async fn lines(&self, most: usize) -> Result<Vec<Line>, Error> {
        let Some(work) = &self.work else { return Ok(Vec::new()) };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut reader = self.engine_reader().await?;
        Ok(outbox::due(&mut reader.conn(), work.served.iter().map(|served| served.machine.as_str()), most).await?)
    }

    /// The number of events that were taken or refused; `None` if the line could not be delivered.
    async fn deliver(self: &Arc<Self>, line: &Line, now: Timestamp) -> Option<u32> {
        let work = self.work.as_ref()?;
        let (failing, target) = (&work.failures.lines, receiver(line));
        match self.request(|reply| Request::new(target.clone(), RequestKind::Deliver, Some(reply))).await {
            Ok(reply) => {
                failing.passed(target);
                Some(if let Reply::Delivered { events } = reply { events } else { 0 })
            }
            Err(error) if error.is_stopping() => None,
            Err(error) => {
                let again = failing.failed(target, now, longest(&error));
                if again.is_logged() && !self.outage.reports(&error) {
                    let Line { machine, key, .. } = line;
                    tracing::warn!(machine, key, tries = again.tries, %error, again_in = ?again.wait, "a line of the outbox cannot be delivered; the others are");
                }
                None
            }
        }
    }
}

fn receiver(line: &Line) -> InstanceKey {
    InstanceKey::new(&line.machine, &line.key)
}
