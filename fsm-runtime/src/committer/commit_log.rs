//! Logs the results of commits with `tracing`, after the commit. The worker logs when an attempt is claimed, starts and ends.

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome::{After, RejectedEvent};
use fsm_core::commit::request::{Reply, Report, RequestKind};
use fsm_core::decide::send::SendOutcome;
use fsm_core::outcome::Outcome;
use tracing::{debug, error, info, warn};

use super::environment::CommitOutcome;
use super::request::Request;
use crate::data_protection::{DataProtection, Owner};

/// Logs a request that was carried out.
pub(super) fn log(request: &Request, commit_outcome: &CommitOutcome, data_protection: &DataProtection) {
    for RejectedEvent { target, event, refusal, .. } in &commit_outcome.rejected {
        let InstanceKey { machine, key, .. } = target;
        match &request.kind {
            RequestKind::Deliver => warn!(%machine, %key, event, %refusal, "an event of the outbox was refused"),
            _ => warn!(%machine, %key, event, %refusal, "an event sent by a verb was refused"),
        }
    }
    match (&request.kind, &commit_outcome.reply) {
        (RequestKind::Send(send), Some(Ok(Reply::Sent { call, outcome, .. }))) if *outcome != SendOutcome::Duplicate => {
            let InstanceKey { machine, key, .. } = &request.target;
            debug!(%machine, %key, event = send.event.name, %call, ?outcome, "sent");
        }
        (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true }))) => {
            log_completion(&request.target, report, commit_outcome, data_protection)
        }
        _ => {}
    }
}

fn log_completion(
    InstanceKey { machine, key, .. }: &InstanceKey,
    Report { attempt, outcome, .. }: &Report,
    commit_outcome: &CommitOutcome,
    data_protection: &DataProtection,
) {
    let (verb, call, number) = (&attempt.verb, attempt.call, attempt.number);
    let outcome = match &commit_outcome.refused {
        Some(problem) => &Outcome::Failure(problem.clone()),
        None => outcome,
    };
    let error = match outcome {
        Outcome::Failure(problem) => data_protection.open_error(Owner { machine, key }, &problem.error),
        Outcome::Lost => {
            info!(%machine, %key, verb, %call, attempt = number, "lost");
            "its worker is gone".into()
        }
        Outcome::Success { verb_requests, .. } => {
            for sent in verb_requests.sends.iter().filter(|sent| !commit_outcome.rejected.iter().any(|rejected| rejected.call == sent.id)) {
                debug!(machine = sent.machine, key = sent.key, event = sent.event.name, call = %sent.id, by = %call, "sent");
            }
            return;
        }
        Outcome::Snoozed { wait } => match commit_outcome.after {
            Some(After::Exhausted) => "it snoozed beyond the `within` of its policy".into(),
            _ => {
                debug!(%machine, %key, verb, %call, attempt = number, ?wait, "snoozed");
                return;
            }
        },
        Outcome::Released => {
            debug!(%machine, %key, verb, %call, attempt = number, "released");
            return;
        }
    };
    match commit_outcome.after {
        Some(After::Again { number: next, at }) => {
            match outcome {
                // The death of a worker is normal operation.
                Outcome::Lost => info!(%machine, %key, verb, %call, attempt = number, error = &*error, next, next_at = %at, "retried"),
                _ => warn!(%machine, %key, verb, %call, attempt = number, error = &*error, next, next_at = %at, "retried"),
            }
        }
        Some(After::Exhausted) => error!(%machine, %key, verb, %call, attempt = number, error = &*error, "exhausted"),
        Some(After::Interrupted) => info!(%machine, %key, verb, %call, attempt = number, error = &*error, "interrupted"),
        None => {}
    }
}
