//! The example of the documentation.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all)]

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

/// A
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCreated {
    /// A
    pub amount_cents: u64,
    /// A
    pub card: String,
}
/// A
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentPaid {}
/// A
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentFailed {}
/// A
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCompleted;
/// A
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {}

/// What the instance itself remembers, committed with each transition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PaymentRecord {
    /// A
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
/// Twice is once.
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

fn main() {
    assert_eq!(PaymentState::Created.to_string(), "created");
    let entry = <Payment as fsm::Machine>::ENTRY;
    let edges: Vec<_> = entry.edges.iter().map(|edge| (edge.from, edge.verb.name, edge.verb.event, edge.after)).collect();
    assert_eq!(edges.len(), 8);
    assert_eq!(edges[0], (None, "created", "OnlinePaymentCreated", None));
    assert_eq!(edges[3], (Some("created"), "expired", "Timeout", Some(Duration::from_secs(1800))));
    let created = entry.edges[0].verb;
    assert_eq!((created.docs, created.line), ("Authorise the card.\n\nTwice is once.", 49));
    assert_eq!((created.timeout, created.data.len()), (Some(Duration::from_secs(30)), 1));
    println!("{}", entry.docs);
}
