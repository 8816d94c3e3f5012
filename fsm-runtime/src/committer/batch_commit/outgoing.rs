//! Events that a verb sends to other instances: each finds room, or the sender's attempt fails; then each is decided like any send.

use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::fire::rejected;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::room::{Delivery, InboxUnread, no_room};
use fsm_core::decide::send::Send;
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Outgoing, Problem};
use fsm_core::retry::RetryAdvice;

use super::{BatchCommit, Decided, earlier};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::{InstanceKey, Reply, Report, Request, RequestKind};
use crate::error::Kind;
use crate::store::conn::Conn;
use crate::store::error::StoreError;

impl BatchCommit<'_> {
    /// The decision about a report, unless an event that the verb sends finds its receiver's inbox full: the attempt failed then, and is
    /// retried by its policy. A transition must not be committed without an event that it sends.
    pub(super) async fn with_room(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        request: &Request,
        decided: Decided,
    ) -> Result<Decided, StoreError> {
        let (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true })), Some(changes)) =
            (&request.kind, &decided.reply, &decided.changes)
        else {
            return Ok(decided);
        };
        let refusal = loop {
            match self.no_room(batch_snapshot, request, changes) {
                Ok(refusal) => break refusal,
                Err(InboxUnread(receiver)) => {
                    let target = batch_snapshot.name(receiver).clone();
                    batch_snapshot.read_on(conn, &target).await?;
                }
            }
        };
        let Some(refusal) = refusal else { return Ok(decided) };
        let problem = Problem::new(&format!("an event that the verb sent was not taken: {refusal}"), RetryAdvice::Default);
        let failed = Report { outcome: Outcome::Failure(problem.clone()), ..Report::new(Arc::clone(&report.attempt), Outcome::Released) };
        let Ok(known) = self.engine.catalog.expect(&request.target.machine) else { return Ok(decided) };
        let failed = loop {
            match self.decide_complete(batch_snapshot, &known.machine, request, &failed) {
                Ok(failed) => break failed,
                Err(NeedsMoreRows) => batch_snapshot.read_on(conn, &request.target).await?,
            }
        };
        Ok(Decided { no_room: Some(problem), ..failed })
    }

    /// The first refusal for lack of room among what the verb sends.
    fn no_room(&self, batch_snapshot: &BatchSnapshot, request: &Request, changes: &Changes) -> Result<Option<Refusal>, InboxUnread> {
        let RequestKind::Complete(report) = &request.kind else { return Ok(None) };
        let sends = report.outcome.sends();
        let limit = self.engine.limits.inbox;
        let receiver = |outgoing: &Outgoing| batch_snapshot.snapshot(&InstanceKey::new(&outgoing.machine, &outgoing.key));
        // Most inboxes are nearly empty, and then all of them find room whatever they are.
        if sends.iter().all(|outgoing| receiver(outgoing).instance.inbox_len().saturating_add(sends.len() as u64) <= limit) {
            return Ok(None);
        }
        let mut sorted: Vec<_> = sends.iter().collect();
        sorted.sort_by_key(|outgoing| (&outgoing.machine, &outgoing.key));
        let deliveries = sorted.into_iter().filter_map(|outgoing| {
            let machine = &self.engine.catalog.expect(&outgoing.machine).ok()?.machine;
            let mut receiver = receiver(outgoing).clone();
            if receiver.instance.id == changes.instance.id {
                receiver.apply(changes.clone());
            }
            Some(Delivery { machine, receiver, send: self.delivery(outgoing) })
        });
        no_room(deliveries, self.moment(false))
    }

    /// What verbs sent to other instances is decided like any send, in the same transaction, once their own transition is
    /// written. What is refused is recorded with the receiver, or with the sender where there is none.
    pub(super) async fn send_outgoing(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[Request],
        commit_outcomes: &mut [CommitOutcome],
    ) -> Result<(), StoreError> {
        let mut all = Vec::new();
        for (place, (request, commit_outcome)) in batch.iter().zip(commit_outcomes.iter()).enumerate() {
            if let (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true })), None) =
                (&request.kind, &commit_outcome.reply, &commit_outcome.no_room)
            {
                all.extend(report.outcome.sends().iter().map(|outgoing| (place, outgoing)));
            }
        }
        // In the order of their names, so that two commits that create the same receivers do not wait for each other crosswise.
        all.sort_by_key(|(_, outgoing)| (&outgoing.machine, &outgoing.key));
        for (place, outgoing) in all {
            let (sender, commit_outcome) = (&batch[place].target, &mut commit_outcomes[place]);
            let (target, decided) = loop {
                match self.decide_outgoing(batch_snapshot, sender, outgoing) {
                    Ok(decided) => break decided,
                    Err(NeedsMoreRows) => batch_snapshot.read_on(conn, &InstanceKey::new(&outgoing.machine, &outgoing.key)).await?,
                }
            };
            let one = self.write(conn, batch_snapshot, std::iter::once(&target), vec![decided]).await?.remove(0);
            commit_outcome.moved.extend(one.moved);
            commit_outcome.runs.extend(one.runs);
            commit_outcome.interrupted.extend(one.interrupted);
            commit_outcome.due_at = earlier(commit_outcome.due_at, one.due_at);
            if !matches!(one.reply, Some(Ok(Reply::Sent { .. }))) {
                commit_outcome.rejected.push(outgoing.id);
            }
            if one.reply.is_none() {
                // Another process created the receiver just now: all of it is decided again.
                return Err(StoreError::Overtaken);
            }
        }
        Ok(())
    }

    fn decide_outgoing(
        &self,
        batch_snapshot: &BatchSnapshot,
        sender: &InstanceKey,
        outgoing: &Outgoing,
    ) -> Result<(InstanceKey, Decided), NeedsMoreRows> {
        let target = InstanceKey::new(&outgoing.machine, &outgoing.key);
        let decided = match self.engine.catalog.expect(&target.machine) {
            Ok(known) => self.decide_send(batch_snapshot, &known.machine, &target, self.delivery(outgoing))?,
            Err(error) => Decided::of(Err(error), None),
        };
        let Some(Err(error)) = &decided.reply else { return Ok((target, decided)) };
        tracing::warn!(machine = outgoing.machine, key = outgoing.key, event = outgoing.event.name, %error, "an event sent by a verb was rejected");
        let keeper = if batch_snapshot.snapshot(&target).is_new { sender.clone() } else { target };
        let changes = match error.cause() {
            Kind::Refused(refusal) => {
                Some(rejected(Instance::clone(&batch_snapshot.snapshot(&keeper).instance), outgoing.id, refusal, self.now))
            }
            _ => None,
        };
        Ok((keeper, Decided::of(Ok(Reply::Completed { counted: false }), changes)))
    }

    fn delivery(&self, outgoing: &Outgoing) -> Send {
        Send {
            id: outgoing.id,
            event: outgoing.event.clone(),
            dedup: None,
            deliver_at: outgoing.deliver_at,
            reject_if_busy: false,
            inbox_limit: self.engine.limits.inbox,
        }
    }
}
