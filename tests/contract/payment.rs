//! The program of the product page, to the letter, but for what its gateway does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fsm::prelude::*;
use fsm::testing::TestBed;
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

/// What the instance itself remembers, committed with each transition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PaymentRecord {
    pub authorised_cents: u64,
}

#[derive(Debug)]
pub struct GatewayDown;

impl fmt::Display for GatewayDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the gateway is down")
    }
}

impl std::error::Error for GatewayDown {}

/// A gateway that fails so many times first.
#[derive(Clone, Default)]
pub struct Gateway {
    failures: Arc<AtomicU32>,
}

impl Gateway {
    pub fn failing(times: u32) -> Gateway {
        Gateway { failures: Arc::new(AtomicU32::new(times)) }
    }

    pub async fn authorise(&self, _idempotency_key: &str, _card: &str, _cents: u64) -> std::result::Result<(), GatewayDown> {
        let fails = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { Err(GatewayDown) } else { Ok(()) }
    }
}

/// Authorise the card.
#[verb(timeout = "30s")]
#[retry(10, "5s", "1h")]
pub async fn created(ctx: &mut Ctx<'_>, record: &mut PaymentRecord, gateway: Data<Gateway>, event: OnlinePaymentCreated) -> Result {
    gateway.authorise(ctx.idempotency_key(), &event.card, event.amount_cents).await?;
    record.authorised_cents = event.amount_cents;
    Ok(())
}

#[verb]
pub async fn paid(event: OnlinePaymentPaid) -> Result {
    let _ = event.receipt;
    Ok(())
}
#[verb]
pub async fn failed(event: OnlinePaymentFailed) -> Result {
    let _ = event.reason;
    Ok(())
}
#[verb]
pub async fn completed(_event: OnlinePaymentCompleted) -> Result {
    Ok(())
}
#[verb]
pub async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}
#[verb]
pub async fn cancelled(event: Cancel) -> Result {
    let _ = event.by;
    Ok(())
}
#[verb]
pub async fn refunding(_event: Cancel) -> Result {
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

pub fn checkout() -> OnlinePaymentCreated {
    OnlinePaymentCreated { amount_cents: 12_00, card: "4242".into() }
}

#[tokio::test]
async fn the_program_of_the_product_page_runs() -> std::result::Result<(), fsm::Error> {
    let folder = std::env::temp_dir().join(format!("fsm-contract-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let runtime = Runtime::builder()
        .database(format!("sqlite://{}/payments.db", folder.display()))
        .machine::<Payment>()
        .data(Gateway::default())
        .start()
        .await?;

    let payments = runtime.machine::<Payment>();
    payments.send("order-1042", checkout()).await?;

    let payment = payments.settled("order-1042").within(Duration::from_secs(60)).await?;
    assert_eq!(format!("{}: {:?} {:?}", payment.key, payment.state, payment.status), "order-1042: Some(Created) Running");
    assert_eq!(payment.state, Some(PaymentState::Created));
    assert_eq!(payment.status, Status::Running);
    assert_eq!(payment.record.authorised_cents, 12_00);
    runtime.shutdown().await?;
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}

async fn retried_under_a_clock_that_the_test_holds(bed: TestBed) {
    let payments = bed.machine::<Payment>();
    payments.send("o-1", checkout()).await.unwrap();
    bed.run_until_idle().await;
    let call = payments.get("o-1").await.unwrap().unwrap().call.unwrap();
    assert_eq!((call.attempt, call.next_at - bed.now()), (2, Duration::from_secs(5)));
    bed.advance(Duration::from_secs(5)).await;
    bed.restart().await;
    bed.advance(Duration::from_secs(10)).await;
    let payment = payments.get("o-1").await.unwrap().unwrap();
    assert_eq!((payment.state, payment.version), (Some(PaymentState::Created), 1));
}

#[tokio::test]
async fn the_test_of_the_product_page_runs_on_sqlite() {
    retried_under_a_clock_that_the_test_holds(TestBed::builder().data(Gateway::failing(2)).sqlite().await).await;
}

#[tokio::test]
async fn the_test_of_the_product_page_runs_on_postgres() {
    retried_under_a_clock_that_the_test_holds(TestBed::builder().data(Gateway::failing(2)).postgres().await).await;
}
