//! Subscriptions: a trial, renewals, dunning, refunds, a card that may be updated at any time, and a cancellation that does not wait for the
//! retries of a charge.
//!
//! ```sh
//! cargo run --example subscription
//! ```
//!
//! Four customers run under the clock of a test bed, so that a year passes in less than a second. A program that serves customers builds a
//! `Runtime` instead; the machine stays the same.
//!
//! The program exits with status 1 if a subscription or a payment is not as expected.

mod bank;
mod plan;

use std::process::ExitCode;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{HistoryEvent, Timestamp};

use bank::Bank;
use plan::{Cancel, Refund, Subscribe, Subscription, SubscriptionState as State, UpdateCard};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy)]
enum Act {
    Subscribe { card: &'static str, trial_days: u32 },
    UpdateCard(&'static str),
    Refund,
    Cancel(&'static str),
    BankIsAway(bool),
}

/// The day, the customer, and what happens.
const YEAR: [(u32, &str, Act); 10] = [
    (0, "ada", Act::Subscribe { card: "4242", trial_days: 14 }),
    (0, "bob", Act::Subscribe { card: "4343", trial_days: 14 }),
    (0, "eve", Act::Subscribe { card: "bad", trial_days: 7 }),
    (0, "kim", Act::Subscribe { card: "bad", trial_days: 14 }),
    // The trial still ends on day 14.
    (10, "ada", Act::UpdateCard("4444")),
    // Her first card was declined on day 14. The next charge is on day 17.
    (15, "kim", Act::UpdateCard("4545")),
    (60, "ada", Act::Refund),
    // On day 74 the third period of ada and bob begins.
    (73, "", Act::BankIsAway(true)),
    (75, "bob", Act::Cancel("too expensive")),
    (75, "", Act::BankIsAway(false)),
];

/// Each customer's state after a year, and the number of periods that were paid.
const EXPECTED: [(&str, State, Status, u32); 4] = [
    ("ada", State::Active, Status::Running, 12),
    ("bob", State::Cancelled, Status::Completed, 2),
    ("eve", State::Unpaid, Status::Completed, 0),
    ("kim", State::Active, Status::Running, 12),
];

fn subscriptions(bank: &Bank) -> TestBedBuilder {
    TestBed::builder().only::<Subscription>().data(bank.clone()).data(bank.booked.clone())
}

/// Runs `year` and then waits until `last_day`. All sends have deduplication ids, so that a scenario can be repeated after a crash.
async fn live(bed: &TestBed, bank: &Bank, begin: Timestamp, year: &[(u32, &str, Act)], last_day: u32) -> Result<(), fsm::Error> {
    let subscriptions = bed.machine::<Subscription>();
    let until = async |day: u32| bed.advance_to((begin + DAY * day).max(bed.now())).await;
    for &(day, name, act) in year {
        until(day).await;
        match act {
            Act::Subscribe { card, trial_days } => {
                subscriptions.send(name, Subscribe { card: card.into(), trial_days }).dedup("subscribe").await?;
            }
            Act::UpdateCard(card) => {
                subscriptions.send(name, UpdateCard { card: card.into() }).dedup("card").await?;
            }
            Act::Refund => {
                subscriptions.send(name, Refund).dedup("refund").await?;
            }
            Act::Cancel(reason) => {
                subscriptions.send(name, Cancel { reason: reason.into() }).dedup("cancel").await?;
            }
            Act::BankIsAway(is_away) => bank.set_away(is_away),
        }
    }
    until(last_day).await;
    Ok(())
}

/// The history, without the events and the successful attempts that led to the transitions.
fn is_told(event: &HistoryEvent) -> bool {
    match event {
        HistoryEvent::Event { .. } | HistoryEvent::Scheduled { .. } => false,
        HistoryEvent::Attempt { state, .. } => *state != AttemptState::Success,
        _ => true,
    }
}

async fn run() -> Result<bool, fsm::Error> {
    let bank = Bank::default();
    let bed = subscriptions(&bank).sqlite().await;
    live(&bed, &bank, bed.now(), &YEAR, 365).await?;
    let mut is_well = bank.booked.happened("ada is refunded") == 1;
    for (name, state, status, periods) in EXPECTED {
        let found = bed.machine::<Subscription>().get(name).await?.expect("everybody subscribed");
        println!("\n{name}: {} in `{state}`, {} periods paid", found.status, found.record.periods);
        for entry in bed.machine::<Subscription>().history(name).await?.iter().filter(|entry| is_told(&entry.event)) {
            println!("  {entry}");
        }
        is_well &= (found.state, found.status, found.record.periods) == (Some(state), status, periods);
        is_well &= bank.booked.happened(&format!("{name} pays")) == periods;
    }
    println!("\n{}", if is_well { "Every subscription and every payment is as expected." } else { "SOMETHING IS NOT AS EXPECTED." });
    Ok(is_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("subscription: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;
