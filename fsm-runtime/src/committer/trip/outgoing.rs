//! Events that a verb sends to other instances: each finds room, or the sender's attempt fails; then each is decided like any send.

use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::fire::rejected;
use fsm_core::decide::inbox::Unread;
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::room::{Delivery, InboxUnread, no_room};
use fsm_core::decide::send::Send;
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Outgoing, Problem};
use fsm_core::retry::RetryAdvice;

use super::{Decided, Trip, earlier};
use crate::committer::board::Board;
use crate::committer::request::{Reply, Report, Request, What, Whose};
use crate::committer::verdict::Verdict;
use crate::error::Kind;
use crate::store::conn::Conn;
use crate::store::error::StoreError;

impl Trip<'_> {
    /// The decision about a report, unless an event that the verb sends finds its receiver's inbox full: the attempt failed then, and is
    /// retried by its policy. A transition must not be committed without an event that it sends.
    pub(super) async fn with_room(
        &self,
        conn: &mut Conn<'_>,
        board: &mut Board,
        request: &Request,
        decided: Decided,
    ) -> Result<Decided, StoreError> {
        let (What::Settle(report), Some(Ok(Reply::Settled { counted: true })), Some(changes)) =
            (&request.what, &decided.reply, &decided.changes)
        else {
            return Ok(decided);
        };
        let refusal = loop {
            match self.no_room(board, request, changes) {
                Ok(refusal) => break refusal,
                Err(InboxUnread(receiver)) => {
                    let whose = board.name(receiver).clone();
                    board.read_on(conn, &whose).await?;
                }
            }
        };
        let Some(refusal) = refusal else { return Ok(decided) };
        let problem = Problem::new(&format!("an event that the verb sent was not taken: {refusal}"), RetryAdvice::Default);
        let failed = Report { outcome: Outcome::Failure(problem.clone()), ..Report::new(Arc::clone(&report.attempt), Outcome::Released) };
        let Ok(known) = self.engine.catalog.expect(&request.whose.machine) else { return Ok(decided) };
        let failed = self.decide_settle(board, &known.machine, request, &failed).expect("a failure takes nothing out of the inbox");
        Ok(Decided { no_room: Some(problem), ..failed })
    }

    /// The first refusal for lack of room among what the verb sends.
    fn no_room(&self, board: &Board, request: &Request, changes: &Changes) -> Result<Option<Refusal>, InboxUnread> {
        let What::Settle(report) = &request.what else { return Ok(None) };
        let sends = report.outcome.sends();
        let limit = self.engine.limits.inbox;
        let receiver = |outgoing: &Outgoing| board.standing(&Whose::new(&outgoing.machine, &outgoing.key));
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
        board: &mut Board,
        batch: &[Request],
        verdicts: &mut [Verdict],
    ) -> Result<(), StoreError> {
        let mut all = Vec::new();
        for (place, (request, verdict)) in batch.iter().zip(verdicts.iter()).enumerate() {
            if let (What::Settle(report), Some(Ok(Reply::Settled { counted: true })), None) =
                (&request.what, &verdict.reply, &verdict.no_room)
            {
                all.extend(report.outcome.sends().iter().map(|outgoing| (place, outgoing)));
            }
        }
        // In the order of their names, so that two commits that create the same receivers do not wait for each other crosswise.
        all.sort_by_key(|(_, outgoing)| (&outgoing.machine, &outgoing.key));
        for (place, outgoing) in all {
            let (sender, verdict) = (&batch[place].whose, &mut verdicts[place]);
            let (whose, decided) = loop {
                match self.decide_outgoing(board, sender, outgoing) {
                    Ok(decided) => break decided,
                    Err(Unread) => board.read_on(conn, &Whose::new(&outgoing.machine, &outgoing.key)).await?,
                }
            };
            let one = self.write(conn, board, std::iter::once(&whose), vec![decided]).await?.remove(0);
            verdict.moved.extend(one.moved);
            verdict.runs.extend(one.runs);
            verdict.due_at = earlier(verdict.due_at, one.due_at);
            if !matches!(one.reply, Some(Ok(Reply::Sent { .. }))) {
                verdict.rejected.push(outgoing.id);
            }
            if one.reply.is_none() {
                // Another process created the receiver just now: all of it is decided again.
                return Err(StoreError::Overtaken);
            }
        }
        Ok(())
    }

    fn decide_outgoing(&self, board: &Board, sender: &Whose, outgoing: &Outgoing) -> Result<(Whose, Decided), Unread> {
        let whose = Whose::new(&outgoing.machine, &outgoing.key);
        let decided = match self.engine.catalog.expect(&whose.machine) {
            Ok(known) => self.decide_send(board, &known.machine, &whose, self.delivery(outgoing))?,
            Err(error) => Decided::of(Err(error), None),
        };
        let Some(Err(error)) = &decided.reply else { return Ok((whose, decided)) };
        tracing::warn!(machine = outgoing.machine, key = outgoing.key, event = outgoing.event.name, %error, "an event sent by a verb was rejected");
        let keeper = if board.standing(&whose).is_new { sender.clone() } else { whose };
        let changes = match error.cause() {
            Kind::Refused(refusal) => Some(rejected(Instance::clone(&board.standing(&keeper).instance), outgoing.id, refusal, self.now)),
            _ => None,
        };
        Ok((keeper, Decided::of(Ok(Reply::Settled { counted: false }), changes)))
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
