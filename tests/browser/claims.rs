//! Machines that are hard to display: fifty states, a thousand attempts, a long key and a long error.

use std::sync::atomic::{AtomicBool, Ordering};

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

/// True if letters arrive.
#[derive(Default)]
pub struct Post(pub AtomicBool);

/// Declares an event and a verb without an effect for each state.
macro_rules! states {
    ($($verb:ident $event:ident),* $(,)?) => { $(
        #[derive(Debug, Clone, Serialize, Deserialize)]
        pub struct $event;
        #[verb]
        async fn $verb(_event: $event) -> Result {
            Ok(())
        }
    )* };
}

states! {
    reported Report, registered Register, assigned Assign, contacted Contact, photographed Photograph, inspected Inspect, estimated Estimate,
    disputed Dispute, reviewed Review, second_opinion AskAgain, accepted Accept, refused Refuse, appealed Appeal, heard Hear, upheld Uphold,
    overturned Overturn, reserved Reserve, approved Approve, escalated Escalate, signed Sign, countersigned Countersign, notified Notify,
    parts_ordered OrderParts, parts_arrived ReceiveParts, parts_missing MissParts, parts_replaced ReplaceParts, repair_scheduled Schedule,
    repair_begun BeginRepair, repair_halted HaltRepair, repair_resumed ResumeRepair, repaired Repair, test_driven TestDrive,
    rejected_by_owner Reject, reworked Rework, handed_over HandOver, invoiced Invoice, invoice_checked CheckInvoice,
    invoice_corrected CorrectInvoice, paid_to_garage PayGarage, paid_to_owner PayOwner, recovered Recover, subrogated Subrogate,
    agreed_with_insurer AgreeWithInsurer, archived_on_paper ArchivePaper, archived_digitally ArchiveFiles, audited Audit, reopened Reopen,
    withdrawn Withdraw, closed Close,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendLetter;

/// Posts a letter to the owner.
#[verb]
#[retry(999, "1ms")]
async fn letter_posted(post: Data<Post>, _event: SendLetter) -> Result {
    let reason = "the address `Straße des 17. Juni 135, 10623 Berlin` was not found by the service of the post office";
    match post.0.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Failure::new(format!("{reason}: {}", "no_such_street_in_the_index_of_streets/".repeat(8)))),
    }
}

fsm! {
    /// An insurance claim for a car, from the report to the archive.
    pub machine Claim = "insurance_claim" {
        start reported;
        reported -> registered; registered -> assigned; assigned -> contacted | letter_posted; letter_posted -> contacted;
        contacted -> photographed; photographed -> inspected;
        inspected -> estimated; estimated -> disputed | reviewed; disputed -> second_opinion; second_opinion -> reviewed;
        reviewed -> accepted | refused; refused -> appealed | withdrawn; appealed -> heard; heard -> upheld | overturned;
        upheld -> withdrawn; overturned -> accepted; accepted -> reserved; reserved -> approved | escalated; escalated -> approved;
        approved -> signed; signed -> countersigned; countersigned -> notified; notified -> parts_ordered | paid_to_owner;
        parts_ordered -> parts_arrived | parts_missing; parts_missing -> parts_replaced; parts_replaced -> repair_scheduled;
        parts_arrived -> repair_scheduled; repair_scheduled -> repair_begun; repair_begun -> repaired | repair_halted;
        repair_halted -> repair_resumed; repair_resumed -> repaired; repaired -> test_driven; test_driven -> handed_over | rejected_by_owner;
        rejected_by_owner -> reworked; reworked -> handed_over; handed_over -> invoiced; invoiced -> invoice_checked;
        invoice_checked -> paid_to_garage | invoice_corrected; invoice_corrected -> paid_to_garage; paid_to_garage -> recovered;
        paid_to_owner -> recovered; recovered -> subrogated | archived_on_paper; subrogated -> agreed_with_insurer;
        agreed_with_insurer -> archived_on_paper; archived_on_paper -> archived_digitally; archived_digitally -> audited;
        audited -> closed | reopened; reopened -> closed;
        end withdrawn, closed;
    }
}
