//! A subscription: customers act at any time. The machine of the promises about staying, interrupting and computed timers.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    pub trial_days: u64,
}
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Renew {
    /// The number of attempts that fail.
    pub failures: u32,
    /// True if each attempt waits until it is cancelled.
    pub waits: bool,
    /// True if the verb requests the event that makes the subscription active again.
    pub goes_on: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CardUpdated {
    pub card: String,
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AddressChanged;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reset;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suspend;

/// The record of a subscription.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub trial_days: u64,
    pub notes: Vec<String>,
}

fn trial_length(account: &Account) -> Duration {
    assert!(account.trial_days < 1000, "no trial is that long");
    account.trial_days as u32 * DAY
}

#[verb]
async fn opened(record: &mut Account, event: Step) -> Result {
    record.trial_days = event.trial_days;
    Ok(())
}

#[verb]
#[retry(1, "1h")]
async fn active(record: &mut Account, event: Step) -> Result {
    record.trial_days = event.trial_days;
    Ok(())
}

#[verb]
#[retry(2, "1h", catch = dunned)]
async fn renewed(ctx: &mut Ctx<'_, renewed>, event: Renew) -> Result {
    if event.waits {
        ctx.cancelled().await;
    }
    if ctx.attempt() <= event.failures {
        return Err(Failure::new("the bank is closed"));
    }
    if event.goes_on {
        ctx.next(Step { trial_days: 7 })?;
    }
    Ok(())
}

#[verb]
#[retry(5, "1d")]
async fn dunned(_caught: Caught<Renew>) -> Result {
    Err(Failure::new("the customer does not answer"))
}

#[verb]
#[retry(2, "2d")]
async fn card_updated(ctx: &mut Ctx<'_, card_updated>, record: &mut Account, event: CardUpdated) -> Result {
    if ctx.attempt() <= event.failures {
        return Err(Failure::new("the vault is closed"));
    }
    record.notes.push(format!("{} in {}", event.card, ctx.state().unwrap_or("no state")));
    Ok(())
}

#[verb]
async fn address_changed(record: &mut Account, _event: AddressChanged) -> Result {
    record.notes.push("moved".into());
    Ok(())
}

#[verb]
async fn noted(record: &mut Account, event: Note) -> Result {
    record.notes.push(event.text);
    Ok(())
}

#[verb]
async fn reset(_event: Reset) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
async fn refunded(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
async fn suspended(_event: Suspend) -> Result {
    Ok(())
}

fsm! {
    /// A subscription with a trial.
    pub machine Sub = "sub" {
        keeps Account;
        on Step {
            start opened;
            any(opened, renewed, reset) -> active;
        }
        active -> renewed;
        active stays on card_updated | address_changed;
        on Note { any(active, renewed) stays on noted; }
        active -> suspended interrupts;
        on Cancel {
            active -> cancelled interrupts;
            renewed -> refunded;
        }
        any(active, reset) -> reset;
        active after trial_length -> expired;
        reset after "2d" -> expired;
        end cancelled, refunded, suspended, expired;
    }
}

pub fn subs() -> TestBedBuilder {
    TestBed::builder().only::<Sub>()
}

/// A subscription that is in `active`, with a trial of 14 days.
pub async fn activated(bed: &TestBed, key: &str) -> fsm::Handle<Sub> {
    let subs = bed.machine::<Sub>();
    subs.send(key, Step { trial_days: 0 }).await.unwrap();
    bed.run_until_idle().await;
    subs.send(key, Step { trial_days: 14 }).await.unwrap();
    bed.run_until_idle().await;
    subs
}

pub async fn state(subs: &fsm::Handle<Sub>, key: &str) -> (Option<SubState>, Status) {
    let sub = subs.get(key).await.unwrap().unwrap();
    (sub.state, sub.status)
}

/// The history without its times.
pub async fn timeline(subs: &fsm::Handle<Sub>, key: &str) -> Vec<String> {
    let history = subs.history(key).await.unwrap();
    history.iter().map(|entry| entry.to_string().split_once("  ").unwrap().1.to_owned()).collect()
}

/// The verbs of the attempts, with their numbers and states.
pub async fn attempts(subs: &fsm::Handle<Sub>, key: &str) -> Vec<(String, u32, AttemptState)> {
    let attempts = subs.attempts(key).await.unwrap();
    attempts.into_iter().map(|attempt| (attempt.verb, attempt.number, attempt.state)).collect()
}
