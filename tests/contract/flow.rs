//! The subscription of the product page: a start that shares its event type, an internal transition, an event that interrupts, a computed
//! timer and an error that is judged by its value.

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CardUpdated {
    pub fails: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Account {
    pub customer: String,
}

#[derive(Debug)]
pub enum VaultError {
    Closed,
}

impl std::fmt::Display for VaultError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the vault is closed")
    }
}

impl std::error::Error for VaultError {}

fn is_permanent(error: &VaultError) -> bool {
    !matches!(error, VaultError::Closed)
}

fn trial_length(account: &Account) -> Duration {
    Duration::from_secs(account.customer.len() as u64 * 60)
}

#[verb]
pub async fn opened(ctx: &mut Ctx<'_, opened>, record: &mut Account, _event: Step) -> Result {
    record.customer = "c-77".into();
    ctx.next(Step)?;
    Ok(())
}

#[verb]
pub async fn active(ctx: &mut Ctx<'_>, _event: Step) -> Result {
    assert_eq!(ctx.state(), Some("opened"));
    Ok(())
}

#[verb]
#[retry(10, "5s", "1h", give_up_if = is_permanent)]
pub async fn card_updated(event: CardUpdated) -> Result<(), VaultError> {
    if event.fails { Err(VaultError::Closed) } else { Ok(()) }
}

#[verb]
pub async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

#[verb]
pub async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! { pub machine Sub = "contract-sub" {
    keeps Account, search(customer);
    on Step { start opened; opened -> active; }
    active stays on card_updated;
    active -> cancelled interrupts;
    active after trial_length -> expired;
    end cancelled, expired;
} }

async fn events_at_any_time(bed: TestBed) {
    let subs = bed.machine::<Sub>();
    for key in ["trial", "customer"] {
        subs.send(key, Step).await.unwrap();
    }
    bed.run_until_idle().await;
    subs.send("trial", CardUpdated { fails: false }).await.unwrap();
    subs.send("customer", CardUpdated { fails: true }).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(subs.get("customer").await.unwrap().unwrap().call.unwrap().attempt, 2);
    subs.send("customer", Cancel).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(subs.get("customer").await.unwrap().unwrap().state, Some(SubState::Cancelled));
    let of_customer = subs.list(Filter::default().field("customer", "c-77").key_prefix("cust").retrying(false)).await.unwrap();
    assert_eq!(of_customer.items.iter().map(|found| found.key.as_str()).collect::<Vec<_>>(), ["customer"]);
    assert_eq!(of_customer.items[0].fields[0].value, "c-77");
    bed.advance(Duration::from_secs(4 * 60)).await;
    assert_eq!(subs.get("trial").await.unwrap().unwrap().state, Some(SubState::Expired));
}

#[tokio::test]
async fn events_come_at_any_time_on_sqlite() {
    events_at_any_time(TestBed::builder().only::<Sub>().sqlite().await).await;
}

#[tokio::test]
async fn events_come_at_any_time_on_postgres() {
    events_at_any_time(TestBed::builder().only::<Sub>().postgres().await).await;
}

#[test]
fn the_schema_has_the_new_kinds_of_edges() {
    let schema = fsm::schema();
    let machine = schema.machines.iter().find(|machine| machine.name == "contract-sub").unwrap();
    let stays: Vec<_> = machine.stays.iter().map(|stay| (stay.state.as_str(), stay.event.as_str(), stay.verb.as_str())).collect();
    assert_eq!(stays, [("active", "CardUpdated", "card_updated")]);
    let computed: Vec<_> = machine.computed_timers.iter().map(|timer| (timer.from.as_str(), timer.function.as_str())).collect();
    assert_eq!(computed, [("active", "trial_length")]);
    let interrupting: Vec<_> = machine.edges.iter().filter(|edge| edge.interrupts).map(|edge| edge.to.as_str()).collect();
    assert_eq!(interrupting, ["cancelled"]);
}
