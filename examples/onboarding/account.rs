//! The machine: from an application to an account.

use fsm::Status;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::services::{Risk, Screening, Signatures};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Apply {
    pub name: String,
    pub country: String,
}
/// The application itself asks for this.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Screen;
/// The risk is not low: a person decides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Review;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Approve {
    pub by: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decline {
    pub by: String,
    pub reason: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sign;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Customer {
    pub name: String,
    pub country: String,
    pub decision: String,
    pub officer: String,
}

#[verb]
async fn applied(ctx: &mut Ctx<'_>, customer: &mut Customer, event: Apply) -> Result {
    customer.name = event.name;
    customer.country = event.country;
    Ok(ctx.next(Screen)?)
}

/// Asks the screening service. Its error type says for each value whether and when it is retried.
#[verb(timeout = "30s")]
#[retry(8, "5s", "10m")]
async fn screened(ctx: &mut Ctx<'_>, customer: &mut Customer, screening: Data<Screening>, _event: Screen) -> Result {
    match screening.ask(ctx.idempotency_key(), &customer.country)? {
        Risk::Low => Ok(ctx.next(Approve { by: "the rules".into() })?),
        Risk::High => Ok(ctx.next(Review)?),
    }
}

/// Rests until a person answers.
#[verb]
async fn reviewed(customer: &mut Customer, _event: Review) -> Result {
    customer.officer = "officer 7".into();
    Ok(())
}

/// Nobody answered in three days: another person is asked.
#[verb]
async fn escalated(customer: &mut Customer, _timeout: Timeout) -> Result {
    customer.officer = "the head of compliance".into();
    Ok(())
}

#[verb]
async fn approved(ctx: &mut Ctx<'_>, customer: &mut Customer, event: Approve) -> Result {
    customer.decision = format!("approved by {}", event.by);
    Ok(ctx.next(Sign)?)
}

/// Waits for the customer's signature. That it is not there yet is no error: the verb snoozes, and uses no retry.
#[verb(timeout = "30s")]
#[retry(5, "1m", within = "30d")]
async fn opened(ctx: &mut Ctx<'_>, customer: &mut Customer, signatures: Data<Signatures>, _event: Sign) -> Result {
    let since = ctx.entered_at().expect("an application was approved before it is signed");
    if !signatures.is_there(&customer.name, ctx.now() - since) {
        return Err(Failure::snooze(Duration::from_secs(6 * 3600)));
    }
    Ok(())
}

#[verb]
async fn declined(customer: &mut Customer, event: Decline) -> Result {
    customer.decision = format!("declined by {}: {}", event.by, event.reason);
    Ok(())
}

#[verb]
async fn expired(customer: &mut Customer, _timeout: Timeout) -> Result {
    customer.decision = "nobody decided".into();
    Ok(())
}

fsm! {
    /// The onboarding of a customer, from the application to the account.
    pub machine Onboarding = "onboarding" {
        retry(3, "1s", "1m");
        keeps Customer;
        start applied;
        applied -> screened;
        screened -> reviewed | approved;
        any(reviewed, escalated) -> approved | declined;
        reviewed after "3d" -> escalated;
        escalated after "2d" -> expired;
        approved -> opened;
        end opened, declined, expired;
    }
}

/// The expected end of each customer. The country of eve does not exist, and no retry changes that: an operator decides.
pub const EXPECTED: [(&str, Option<OnboardingState>, Status); 5] = [
    ("ada", Some(OnboardingState::Opened), Status::Completed),
    ("bob", Some(OnboardingState::Opened), Status::Completed),
    ("eve", Some(OnboardingState::Applied), Status::Error),
    ("kim", Some(OnboardingState::Declined), Status::Completed),
    ("max", Some(OnboardingState::Expired), Status::Completed),
];
