//! Orders that branch by their content, and a second machine, a store room, that they exchange events with.
//!
//! ```sh
//! cargo run --example order                                # embedded SQLite, nothing else installed
//! cargo run --example order -- --database postgres://…     # the same on PostgreSQL
//! ```
//!
//! A verb decides from its data which event comes next (`ctx.next`). An event that it sends to another instance (`ctx.send`) is committed
//! together with its own transition.
//!
//! The program exits with status 1 if an order does not end as expected, or if the store room's count is wrong.

use std::process::ExitCode;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

// --- The orders. ---

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    article: String,
    quantity: u32,
}
/// The next event of an order for an e-book.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Download;
/// The answers of the store room: `Reserved` and `SoldOut`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reserved;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SoldOut;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ship;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Cart {
    article: String,
    quantity: u32,
}

/// The branch: an e-book is downloaded at once; for any other article, the store room is asked.
#[verb]
async fn placed(ctx: &mut Ctx<'_>, record: &mut Cart, event: Place) -> Result {
    record.article = event.article;
    record.quantity = event.quantity;
    if record.article.ends_with(".epub") {
        ctx.next(Download)?;
    } else {
        let order = ctx.key().to_owned();
        ctx.send::<StoreRoom>(&record.article, Take { order, quantity: record.quantity })?;
    }
    Ok(())
}

#[verb]
async fn downloaded(_event: Download) -> Result {
    Ok(())
}

/// A reserved order is shipped at once.
#[verb]
async fn reserved(ctx: &mut Ctx<'_>, _event: Reserved) -> Result {
    Ok(ctx.next(Ship)?)
}

#[verb]
async fn back_ordered(_event: SoldOut) -> Result {
    Ok(())
}

#[verb]
#[retry(10, "1s", "10m")]
async fn shipped(_event: Ship) -> Result {
    Ok(())
}

fsm! {
    /// An order, from the cart to the customer.
    machine Order = "order" {
        keeps Cart;
        start placed;
        placed -> downloaded | reserved | back_ordered;
        back_ordered -> reserved;
        reserved -> shipped;
        end downloaded, shipped;
    }
}

// --- The store room: one instance for each article. Its events run one at a time, so that no piece is given away twice. ---

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Deliver {
    quantity: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Take {
    order: String,
    quantity: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Shelf {
    left: u32,
    taken: u32,
    /// Orders that wait for the next delivery, in the order of their arrival.
    waiting: Vec<Take>,
}

#[verb]
async fn filled(ctx: &mut Ctx<'_>, record: &mut Shelf, event: Deliver) -> Result {
    record.left += event.quantity;
    while record.waiting.first().is_some_and(|first| first.quantity <= record.left) {
        let first = record.waiting.remove(0);
        give(ctx, record, &first)?;
    }
    Ok(())
}

#[verb]
async fn asked(ctx: &mut Ctx<'_>, record: &mut Shelf, event: Take) -> Result {
    if record.waiting.is_empty() && event.quantity <= record.left {
        return give(ctx, record, &event);
    }
    ctx.send::<Order>(&event.order, SoldOut)?;
    record.waiting.push(event);
    Ok(())
}

fn give(ctx: &mut Ctx<'_>, shelf: &mut Shelf, take: &Take) -> Result {
    shelf.left -= take.quantity;
    shelf.taken += take.quantity;
    ctx.send::<Order>(&take.order, Reserved)?;
    Ok(())
}

fsm! {
    /// The stock of one article.
    machine StoreRoom = "store-room" {
        keeps Shelf;
        start filled;
        any(filled, asked) -> filled | asked;
    }
}

// --- The example. ---

async fn run(url: &str) -> Result<bool, fsm::Error> {
    let runtime = Runtime::builder().database(url).start().await?;
    let (orders, store_room) = (runtime.machine::<Order>(), runtime.machine::<StoreRoom>());
    // The database may hold orders and articles of earlier runs, so the keys contain the process id.
    let own = |name: &str| format!("{}-{name}", std::process::id());
    let lamp = own("lamp");

    println!("ten lamps are delivered");
    store_room.send(&lamp, Deliver { quantity: 10 }).await?;
    let placed = [
        ("ada", lamp.clone(), 4),
        ("bob", lamp.clone(), 5),
        ("cem", lamp.clone(), 3),
        ("dora", own("novel.epub"), 1),
        ("eve", lamp.clone(), 1),
    ];
    for (customer, article, quantity) in &placed {
        orders.send(own(customer), Place { article: article.clone(), quantity: *quantity }).await?;
        // Each order waits for the previous one, so that the lamps are given out in this order.
        answered(&orders, &own(customer)).await?;
    }
    show(&orders, &placed, &own).await?;

    println!("\nten more lamps are delivered");
    store_room.send(&lamp, Deliver { quantity: 10 }).await?;
    let mut is_well = true;
    for (customer, article, _) in &placed {
        let mut watch = orders.watch(own(customer));
        let mut last = None;
        while let Some(order) = watch.next().await {
            last = order?.state;
        }
        let expected = if article.ends_with(".epub") { OrderState::Downloaded } else { OrderState::Shipped };
        is_well &= last == Some(expected);
    }
    show(&orders, &placed, &own).await?;

    println!("\nthe history of cem's order:");
    for entry in orders.history(own("cem")).await? {
        println!("  {entry}");
    }
    let shelf = store_room.settled(&lamp).await?.record;
    let ordered: u32 = placed.iter().filter(|(_, article, _)| *article == lamp).map(|(_, _, quantity)| quantity).sum();
    println!("\n20 lamps were delivered; {ordered} were ordered, {} were reserved, {} are left", shelf.taken, shelf.left);
    is_well &= shelf.taken == ordered && shelf.taken + shelf.left == 20 && shelf.waiting.is_empty();
    println!("{}", if is_well { "Every order ended as expected." } else { "AN ORDER OR THE COUNT IS WRONG." });
    runtime.shutdown().await?;
    Ok(is_well)
}

/// Waits until the store room has answered, or the download has ended: the order has left `placed` and has no open call.
async fn answered(orders: &fsm::Handle<Order>, key: &str) -> Result<(), fsm::Error> {
    let mut watch = orders.watch(key);
    while let Some(order) = watch.next().await {
        let order = order?;
        if !matches!(order.state, None | Some(OrderState::Placed)) && order.call.is_none() {
            break;
        }
    }
    Ok(())
}

async fn show(orders: &fsm::Handle<Order>, placed: &[(&str, String, u32)], own: &impl Fn(&str) -> String) -> Result<(), fsm::Error> {
    for (customer, article, quantity) in placed {
        let Some(order) = orders.get(own(customer)).await? else { continue };
        let state = order.state.map_or("new".to_owned(), |state| state.to_string());
        let article = article.split_once('-').map_or(article.as_str(), |(_, article)| article);
        println!("  {customer:<5} {quantity} x {article:<11} {state}");
    }
    Ok(())
}

fn database() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(format!("sqlite://{}", std::env::temp_dir().join(format!("fsm-order-{}.db", std::process::id())).display())),
        (Some("--database"), Some(url)) => Ok(url),
        _ => Err("usage: order [--database URL]".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = match database() {
        Ok(url) => url,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match run(&url).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("order: {error}");
            ExitCode::FAILURE
        }
    }
}
