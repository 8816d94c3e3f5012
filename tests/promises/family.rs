//! The machines of the tests of children: orders whose parcels are instances of their own.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Handle, HistoryEntry};
use serde::{Deserialize, Serialize};

/// The record of an order: a line for each event of its parcels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    pub lines: Vec<String>,
}

/// Starts an order with parcels of these keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ship {
    pub parcels: Vec<String>,
    pub detached: bool,
    /// The number of attempts that fail after they have asked for the parcels.
    pub failures: u32,
}
/// Adds parcels to an order that ships already.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Extend {
    pub parcels: Vec<String>,
}
/// A remark on an order, whose verb fails this many times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remark {
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Abandon;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Close;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Pack {
    /// The verb fails while this is true.
    pub fails: bool,
    /// The keys of parcels inside this one.
    pub inner: Vec<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deliver;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lose;

pub fn ship<const N: usize>(parcels: [&str; N]) -> Ship {
    Ship { parcels: parcels.map(str::to_owned).into(), ..Ship::default() }
}

/// A parcel whose key begins with `nest` contains another one.
fn pack(key: &str) -> (String, Pack) {
    let inner = if key.starts_with("nest") { vec![format!("in-{key}")] } else { Vec::new() };
    (key.to_owned(), Pack { fails: key.contains("heavy"), inner })
}

#[verb]
#[retry(3, "5s")]
async fn shipping(ctx: &mut Ctx<'_>, event: Ship) -> Result {
    let children = ctx.start_children::<Parcel>(event.parcels.iter().map(|key| pack(key)))?;
    if event.detached {
        children.detached();
    }
    match ctx.attempt() <= event.failures {
        true => Err(std::io::Error::other("the printer has no paper").into()),
        false => Ok(()),
    }
}
#[verb]
async fn extended(ctx: &mut Ctx<'_>, event: Extend) -> Result {
    for key in &event.parcels {
        let (key, event) = pack(key);
        ctx.child::<Parcel>(key, event)?;
    }
    Ok(())
}
#[verb]
#[retry(3, "5s")]
async fn remarked(ctx: &mut Ctx<'_>, event: Remark) -> Result {
    match ctx.attempt() <= event.failures {
        true => Err(std::io::Error::other("no pencil").into()),
        false => Ok(()),
    }
}
#[verb]
#[retry(3, "5s")]
async fn delivered(ctx: &mut Ctx<'_>, log: &mut Log, all: ChildrenEnded) -> Result {
    let mut keys = Vec::new();
    let mut page = ctx.children::<Parcel>().limit(2).await?;
    loop {
        keys.extend(page.items.into_iter().map(|parcel| parcel.key));
        let Some(next) = page.next else { break };
        page = ctx.children::<Parcel>().limit(2).after(next).await?;
    }
    // They come in the order of their creation, which differs if they are in other partitions.
    keys.sort();
    let (delivered, lost) = (all.in_state(ParcelState::Handed), all.in_state(ParcelState::Lost));
    let cancelled = all.with_status(Status::Cancelled);
    log.lines.push(format!("{}: {delivered} delivered, {lost} lost, {cancelled} cancelled, {}", all.state, keys.join(" ")));
    Ok(())
}
#[verb]
async fn abandoned(_event: Abandon) -> Result {
    Ok(())
}
#[verb]
async fn closed(_event: Close) -> Result {
    Ok(())
}

#[verb]
async fn packed(ctx: &mut Ctx<'_>, event: Pack) -> Result {
    ctx.start_children::<Parcel>(event.inner.iter().map(|key| pack(key)))?;
    match event.fails {
        true => Err(std::io::Error::other("too heavy").into()),
        false => Ok(()),
    }
}
#[verb]
async fn handed(_event: Deliver) -> Result {
    Ok(())
}
#[verb]
async fn lost(_event: Lose) -> Result {
    Ok(())
}

fsm! {
    pub machine Order = "family-order" {
        keeps Log;
        start shipping;
        shipping stays on extended | remarked;
        shipping -> delivered | abandoned;
        delivered -> closed;
        end closed, abandoned;
    }
}
fsm! {
    pub machine Parcel = "family-parcel" {
        start packed;
        packed -> handed | lost;
        end handed, lost;
    }
}

#[verb]
async fn gathering(ctx: &mut Ctx<'_>, event: Gather) -> Result {
    ctx.start_children::<Parcel>(event.parcels.iter().map(|key| pack(key)))?;
    Ok(())
}
#[verb]
async fn gathered(log: &mut Log, child: ChildEnded<Parcel>) -> Result {
    let state = child.state.map_or("nowhere".to_owned(), |state| state.to_string());
    log.lines.push(format!("{} {} in {state}", child.key, child.status));
    Ok(())
}
#[verb]
async fn alarmed(log: &mut Log, child: ChildFailed<Parcel>) -> Result {
    log.lines.push(format!("{} failed", child.key));
    Ok(())
}
#[verb]
async fn complete(log: &mut Log, all: ChildrenEnded) -> Result {
    log.lines.push(format!("all {}", all.count()));
    Ok(())
}
#[verb]
async fn stopped(_event: Abandon) -> Result {
    Ok(())
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gather {
    pub parcels: Vec<String>,
}

fsm! {
    /// An order that hears of each of its parcels.
    pub machine Gathering = "family-gathering" {
        keeps Log;
        start gathering;
        gathering stays on gathered | alarmed;
        gathering -> complete | stopped;
        stopped -> closed;
        end complete, closed;
    }
}

pub fn family() -> TestBedBuilder {
    TestBed::builder().only::<Order>().only::<Parcel>().only::<Gathering>()
}

/// Starts an order with these parcels and lets it pack them.
pub async fn shipped<const N: usize>(bed: &TestBed, parcels: [&str; N]) -> Handle<Order> {
    let orders = bed.machine::<Order>();
    orders.send("o-1", ship(parcels)).await.unwrap();
    bed.run_until_idle().await;
    orders
}

pub async fn hand(bed: &TestBed, parcels: &[&str]) {
    for parcel in parcels {
        bed.machine::<Parcel>().send(parcel, Deliver).await.unwrap();
    }
    bed.run_until_idle().await;
}

/// The state, the status and the lines of an order.
pub async fn order(orders: &Handle<Order>) -> (Option<OrderState>, Status, Vec<String>) {
    let order = orders.get("o-1").await.unwrap().unwrap();
    (order.state, order.status, order.record.lines)
}

/// The history of an instance as texts.
pub async fn timeline<M: fsm::Machine>(handle: &Handle<M>, key: &str) -> Vec<String> {
    handle.history(key).await.unwrap().iter().map(HistoryEntry::to_string).collect()
}
