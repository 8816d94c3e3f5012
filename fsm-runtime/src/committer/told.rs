//! What a commit means, told to `tracing`: only what is true by then. How an attempt is claimed, starts and ends is its worker's to tell.

use fsm_core::decide::send::SendOutcome;
use fsm_core::outcome::Outcome;
use tracing::{debug, info, warn};

use super::request::{Reply, Report, Request, What, Whose};
use super::verdict::{After, Verdict};
use crate::discretion::{Discretion, Owner};

/// Tells of a request that was carried out.
pub(super) fn tell(request: &Request, verdict: &Verdict, discretion: &Discretion) {
    match (&request.what, &verdict.reply) {
        (What::Send(send), Some(Ok(Reply::Sent { call, outcome, .. }))) if *outcome != SendOutcome::Duplicate => {
            let Whose { machine, key } = &request.whose;
            debug!(%machine, %key, event = send.event.name, %call, ?outcome, "sent");
        }
        (What::Settle(report), Some(Ok(Reply::Settled { counted: true }))) => settled(&request.whose, report, verdict, discretion),
        _ => {}
    }
}

fn settled(Whose { machine, key }: &Whose, Report { attempt, outcome, .. }: &Report, verdict: &Verdict, discretion: &Discretion) {
    let (verb, call, number) = (&attempt.verb, attempt.call, attempt.number);
    let outcome = match &verdict.no_room {
        Some(problem) => &Outcome::Failure(problem.clone()),
        None => outcome,
    };
    let error = match outcome {
        Outcome::Failure(problem) => discretion.open_error(Owner { machine, key }, &problem.error),
        Outcome::Lost => {
            info!(%machine, %key, verb, %call, attempt = number, "lost");
            "its worker's lease ran out".into()
        }
        Outcome::Success { asks, .. } => {
            for sent in asks.sends.iter().filter(|sent| !verdict.rejected.contains(&sent.id)) {
                debug!(machine = sent.machine, key = sent.key, event = sent.event.name, call = %sent.id, by = %call, "sent");
            }
            return;
        }
        Outcome::Released => {
            debug!(%machine, %key, verb, %call, attempt = number, "given back");
            return;
        }
    };
    match verdict.after {
        Some(After::Again { number: next, at }) => {
            info!(%machine, %key, verb, %call, attempt = number, error = &*error, next, %at, "retried");
        }
        Some(After::Exhausted) => warn!(%machine, %key, verb, %call, attempt = number, error = &*error, "exhausted"),
        None => {}
    }
}
