//! The example of the documentation, and the entries that it registers.

use std::any::TypeId;

use fsm::__private::{Accepts, MachineRef, RetryEntry, Verb, VerbRef, WaitEntry, inventory};
use fsm::Machine;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

/// A customer paid at the checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCreated {
    /// The amount in cents.
    pub amount_cents: u64,
    /// The number of the card.
    pub card: String,
}
/// The payment was made at the bank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentPaid {}
/// The bank refused the payment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentFailed {}
/// The money has arrived.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCompleted;
/// The customer cancelled the payment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {}

/// The record of a payment. It is committed with each transition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PaymentRecord {
    /// The authorised amount in cents.
    pub authorised_cents: u64,
}

struct Gateway;

impl Gateway {
    async fn authorise(&self, _card: &str, _cents: u64) -> std::result::Result<(), std::io::Error> {
        Ok(())
    }
}

/// Authorise the card.
///
/// A repeated call is harmless.
#[verb(timeout = "30s")]
#[retry(10, "5s", "1h")]
async fn created(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, gateway: Data<Gateway>, event: OnlinePaymentCreated) -> Result {
    let _ = &ctx;
    gateway.authorise(&event.card, event.amount_cents).await?;
    record.authorised_cents = event.amount_cents;
    Ok(())
}

#[verb]
async fn paid(_event: OnlinePaymentPaid) -> Result {
    Ok(())
}
#[verb]
async fn failed(_event: OnlinePaymentFailed) -> Result {
    Ok(())
}
#[verb]
async fn completed(_event: OnlinePaymentCompleted) -> Result {
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
async fn refunding(_event: Cancel) -> Result {
    Ok(())
}

fsm! {
    /// An online payment, from checkout to settlement.
    pub machine Payment = "payment" {
        retry(3, "1s", "1m");
        keeps PaymentRecord;
        start created;
        created -> paid | failed;
        created after "30m" -> expired;
        paid -> completed;
        on Cancel {
            created -> cancelled;
            paid -> refunding;
        }
        refunding -> completed;
        end completed, failed, expired, cancelled;
    }
}

#[test]
fn the_machine_is_registered_as_it_was_declared() {
    let entry = <Payment as Machine>::ENTRY;
    assert_eq!(
        (entry.name, entry.docs, entry.record),
        ("payment", "An online payment, from checkout to settlement.", Some("PaymentRecord"))
    );
    let edges: Vec<_> = entry.edges.iter().map(|edge| (edge.from, edge.verb.event, edge.verb.name)).collect();
    let expected = [
        (None, "OnlinePaymentCreated", "created"),
        (Some("created"), "OnlinePaymentPaid", "paid"),
        (Some("created"), "OnlinePaymentFailed", "failed"),
        (Some("created"), "Timeout", "expired"),
        (Some("paid"), "OnlinePaymentCompleted", "completed"),
        (Some("created"), "Cancel", "cancelled"),
        (Some("paid"), "Cancel", "refunding"),
        (Some("refunding"), "OnlinePaymentCompleted", "completed"),
    ];
    assert_eq!(edges, expected);
    assert!(matches!(entry.edges[3].after, Some(WaitEntry::Fixed(wait)) if wait == Duration::from_secs(1800)));
    assert_eq!(entry.ends, ["completed", "failed", "expired", "cancelled"]);
    assert!(matches!(entry.retry, RetryEntry::Policy(policy) if policy.max_attempts == Some(4)));
    assert!(inventory::iter::<MachineRef>().any(|registered| std::ptr::eq(registered.0, entry)));
}

#[test]
fn a_verb_is_registered_with_all_that_it_says() {
    let entry = <created as Verb>::ENTRY;
    assert_eq!((entry.name, entry.docs), ("created", "Authorise the card.\n\nA repeated call is harmless."));
    assert_eq!((entry.module, entry.file), (module_path!(), file!()));
    let line = include_str!("payment.rs").lines().position(|line| line.starts_with("async fn created")).unwrap() + 1;
    assert_eq!(entry.line as usize, line);
    assert_eq!((entry.timeout, (entry.event_type)()), (Some(Duration::from_secs(30)), TypeId::of::<OnlinePaymentCreated>()));
    assert_eq!(entry.data.iter().map(|data| (data.id)()).collect::<Vec<_>>(), [TypeId::of::<Gateway>()]);
    let RetryEntry::Policy(policy) = entry.retry else { panic!("`created` has a policy") };
    assert_eq!((policy.max_attempts, policy.min, policy.max), (Some(11), Duration::from_secs(5), Duration::from_secs(3600)));
    assert!(matches!(<paid as Verb>::ENTRY.retry, RetryEntry::Inherit));
    assert!(inventory::iter::<VerbRef>().any(|registered| std::ptr::eq(registered.0, entry)));
}

#[test]
fn a_state_is_its_name_in_text_and_json() {
    assert_eq!(format!("{:>12}|", PaymentState::Created), "     created|");
    assert_eq!("refunding".parse::<PaymentState>().unwrap(), PaymentState::Refunding);
    assert_eq!(serde_json::to_string(&PaymentState::Paid).unwrap(), "\"paid\"");
    assert_eq!(serde_json::from_str::<PaymentState>("\"paid\"").unwrap(), PaymentState::Paid);
    let error = "piad".parse::<PaymentState>().unwrap_err();
    let states = "`created`, `paid`, `failed`, `expired`, `completed`, `cancelled` and `refunding`";
    assert_eq!(error.to_string(), format!("`piad` is not a state of `payment`, whose states are {states}"));
    assert_eq!(serde_json::from_str::<PaymentState>("\"piad\"").unwrap_err().to_string(), error.to_string());
}

#[test]
fn events_have_the_names_of_their_types() {
    assert_eq!(<Payment as Accepts<Cancel>>::EVENT, "Cancel");
    assert_eq!(<Payment as Accepts<OnlinePaymentPaid>>::EVENT, "OnlinePaymentPaid");
}

/// The function of a verb can still be called directly.
#[test]
fn a_verb_is_still_a_function() {
    let call = paid(OnlinePaymentPaid {});
    assert!(futures_of(call).is_ok());
}

fn futures_of<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers").block_on(future)
}
