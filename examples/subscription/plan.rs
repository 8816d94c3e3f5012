//! The machine: trial, renewals, dunning, and the events that a customer may send at any time.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::DAY;
use crate::bank::{Bank, BankError};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Subscribe {
    pub card: String,
    pub trial_days: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateCard {
    pub card: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refund;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {
    pub reason: String,
}
/// The machine sends this to itself after a declined charge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dun;
/// The machine sends this to itself after the last declined charge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GiveUp;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub card: String,
    pub trial_days: u32,
    /// The number of periods that were paid.
    pub periods: u32,
    /// The number of declined charges since the last payment.
    pub declines: u32,
    pub refunds: u32,
    /// Why the subscription ended.
    pub end: String,
}

/// The number of declined charges after which the subscription ends.
const MOST_DECLINES: u32 = 3;

#[verb]
async fn trial(account: &mut Account, event: Subscribe) -> Result {
    account.card = event.card;
    account.trial_days = event.trial_days;
    Ok(())
}

/// The wait of a timer. It is called when the trial begins, so each customer may have a trial of another length.
fn trial_length(account: &Account) -> Duration {
    DAY * account.trial_days
}

/// Charges the card. The customer has paid for a period once this transition is committed. Then the timer of the state ends the period.
#[verb(timeout = "30s")]
#[retry(20, "10m", "8h", give_up_if = is_declined, catch = declined)]
async fn active(ctx: &mut Ctx<'_>, account: &mut Account, bank: Data<Bank>, _timeout: Timeout) -> Result<(), BankError> {
    bank.charge(ctx.idempotency_key(), ctx.key(), &account.card).await?;
    account.periods += 1;
    account.declines = 0;
    Ok(())
}

fn is_declined(error: &BankError) -> bool {
    matches!(error, BankError::Declined)
}

/// Runs if a charge was given up. The subscription is still in its previous state; the requested event moves it on.
#[verb]
async fn declined(ctx: &mut Ctx<'_>, account: &mut Account, _caught: Caught<Timeout>) -> Result {
    account.declines += 1;
    if account.declines < MOST_DECLINES {
        ctx.next(Dun)?
    } else {
        ctx.next(GiveUp)?
    }
    Ok(())
}

/// Rests until the timer of the state charges the card again.
#[verb]
async fn past_due(_event: Dun) -> Result {
    Ok(())
}

/// Stays in the state, so that neither the trial, nor the period, nor the wait before the next charge starts anew.
#[verb]
async fn card_updated(account: &mut Account, event: UpdateCard) -> Result {
    account.card = event.card;
    Ok(())
}

#[verb(timeout = "30s")]
#[retry(20, "10m", "8h")]
async fn refunded(ctx: &mut Ctx<'_>, account: &mut Account, bank: Data<Bank>, _event: Refund) -> Result<(), BankError> {
    bank.refund(ctx.idempotency_key(), ctx.key()).await?;
    account.refunds += 1;
    Ok(())
}

/// Interrupts: a customer who cancels does not wait for the retries of a charge.
#[verb]
async fn cancelled(account: &mut Account, event: Cancel) -> Result {
    account.end = event.reason;
    Ok(())
}

#[verb]
async fn unpaid(account: &mut Account, _event: GiveUp) -> Result {
    account.end = format!("{} declined charges", account.declines);
    Ok(())
}

fsm! {
    /// A subscription that is charged every 30 days.
    pub machine Subscription = "subscription" {
        retry(3, "1s", "1m");
        keeps Account;
        start trial;
        trial after trial_length -> active;
        active after "30d" -> active;
        past_due after "3d" -> active;
        any(trial, active, past_due) -> past_due;
        past_due -> unpaid;
        any(trial, active, past_due) stays on card_updated;
        any(active, past_due) stays on refunded;
        any(trial, active, past_due) -> cancelled interrupts;
        end cancelled, unpaid;
    }
}
