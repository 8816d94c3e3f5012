//! The payment machine of the documentation, with a gateway that fails as often as a test requires.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCreated {
    pub amount_cents: u64,
    pub card: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentPaid {
    pub receipt: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentFailed {
    pub reason: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnlinePaymentCompleted;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel {
    pub by: String,
}

/// The record of a payment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PaymentRecord {
    pub authorised_cents: u64,
}

#[derive(Debug)]
pub struct GatewayError(pub String);
impl std::fmt::Display for GatewayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for GatewayError {}

/// Fails a given number of times, and records the idempotency key of every call.
pub struct Gateway {
    failures_left: AtomicU32,
    calls: Mutex<Vec<String>>,
}

impl Gateway {
    pub fn failing(times: u32) -> Gateway {
        Gateway { failures_left: AtomicU32::new(times), calls: Mutex::default() }
    }

    async fn authorise(&self, idempotency_key: &str, _card: &str, _cents: u64) -> Result<(), GatewayError> {
        self.calls.lock().expect("unpoisoned").push(idempotency_key.to_owned());
        let left = self.failures_left.load(Ordering::SeqCst);
        if left > 0 {
            self.failures_left.store(left - 1, Ordering::SeqCst);
            return Err(GatewayError(format!("the gateway is down, {left} to go")));
        }
        Ok(())
    }

    /// Returns the number of calls and the number of different keys.
    pub fn called(&self) -> (usize, usize) {
        let calls = self.calls.lock().expect("unpoisoned");
        (calls.len(), calls.iter().collect::<HashSet<_>>().len())
    }
}

/// Authorise the card.
#[verb(timeout = "30s")]
#[retry(10, "5s", "1h")]
async fn created(
    ctx: &mut Ctx<'_>,
    record: &mut PaymentRecord,
    gateway: Data<std::sync::Arc<Gateway>>,
    event: OnlinePaymentCreated,
) -> Result {
    gateway.authorise(ctx.idempotency_key(), &event.card, event.amount_cents).await?;
    record.authorised_cents = event.amount_cents;
    Ok(())
}

#[verb]
async fn paid(event: OnlinePaymentPaid) -> Result {
    if event.receipt.is_empty() { Err(GatewayError("no receipt".into()).into()) } else { Ok(()) }
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
async fn expired(timeout: Timeout) -> Result {
    assert_eq!(timeout.state, "created");
    Ok(())
}
#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}
#[verb]
#[retry(none)]
async fn refunding(_event: Cancel) -> Result {
    Ok(())
}

fsm! {
    /// An online payment, from checkout to settlement.
    pub machine Payment = "payment" {
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

/// A test bed for payments whose gateway fails `times` times.
pub fn failing(times: u32) -> TestBedBuilder {
    watched(&std::sync::Arc::new(Gateway::failing(times)))
}

/// A test bed for payments with this gateway.
pub fn watched(gateway: &std::sync::Arc<Gateway>) -> TestBedBuilder {
    TestBed::builder().only::<Payment>().data(std::sync::Arc::clone(gateway))
}

pub fn checkout() -> OnlinePaymentCreated {
    OnlinePaymentCreated { amount_cents: 12_00, card: "4242".into() }
}

pub fn paid_with(receipt: &str) -> OnlinePaymentPaid {
    OnlinePaymentPaid { receipt: receipt.into() }
}
