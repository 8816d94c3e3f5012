//! The machine of a payment: its events, its record, its verbs and its graph.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::gateway::{Declined, Gateway};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checkout {
    pub amount_cents: u64,
    pub card: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capture {
    pub receipt: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel;

/// The record of a payment. It is committed with each transition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PaymentRecord {
    pub amount_cents: u64,
    pub card: String,
    pub charged_cents: u64,
}

/// Stores the amount and the card in the record, and continues with the charge.
#[verb]
async fn created(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, event: Checkout) -> Result {
    record.amount_cents = event.amount_cents;
    record.card = event.card;
    Ok(ctx.next(Charge)?)
}

/// Charges the card. The gateway recognises a repeated charge by its idempotency key.
#[verb(timeout = "5s")]
#[retry(8, "100ms", "1s", jitter = 0.2, give_up_on(Declined))]
async fn charged(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, gateway: Data<Gateway>, _event: Charge) -> Result {
    let receipt = gateway.charge(ctx.idempotency_key(), &record.card, record.amount_cents).await?;
    record.charged_cents = record.amount_cents;
    Ok(ctx.next(Capture { receipt })?)
}

#[verb]
async fn settled(event: Capture) -> Result {
    if event.receipt.is_empty() { Err(Failure::permanent("the gateway gave no receipt")) } else { Ok(()) }
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
async fn abandoned(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    /// An online payment, from checkout to settlement.
    pub machine Payment = "payment" {
        keeps PaymentRecord;
        start created;
        created -> charged | cancelled;
        created after "24h" -> abandoned;
        charged -> settled;
        end settled, cancelled, abandoned;
    }
}
