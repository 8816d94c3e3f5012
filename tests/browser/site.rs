//! A program with a console: orders that are paid through a bank, which may be unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use fsm::prelude::*;
use fsm::{Access, Console, Handle, console};
use serde::{Deserialize, Serialize};

use crate::chromium::LIMIT;
use crate::support::Folder;

/// A key with all characters that have a meaning in URLs and pages.
pub const ODD: &str = "a/b.c?d#é 😀";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checkout {
    pub cents: u64,
    pub card: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship {
    pub parcel: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OrderRecord {
    pub cents: u64,
    pub card: String,
    pub parcel: String,
}

/// The bank of the cards.
#[derive(Default)]
pub struct Bank {
    pub is_away: AtomicBool,
    pub declines: AtomicBool,
}

/// Stores what was ordered.
#[verb]
async fn created(record: &mut OrderRecord, event: Checkout) -> Result {
    record.cents = event.cents;
    record.card = event.card;
    Ok(())
}

/// Charges the card.
#[verb(timeout = "10s")]
#[retry(10, "3s")]
async fn charged(bank: Data<Arc<Bank>>, _event: Charge) -> Result {
    if bank.declines.load(Ordering::Relaxed) {
        return Err(Failure::permanent("card 4242 was declined by the bank"));
    }
    if bank.is_away.load(Ordering::Relaxed) { Err(Failure::new("the bank does not answer")) } else { Ok(()) }
}

/// Hands the parcel to the carrier.
#[verb]
#[retry(10, "1m", "1h", jitter = 0.1)]
async fn shipped(record: &mut OrderRecord, bank: Data<Arc<Bank>>, event: Ship) -> Result {
    if bank.is_away.load(Ordering::Relaxed) {
        return Err(Failure::new("the carrier does not answer: connection to 10.7.0.3:443 was refused"));
    }
    record.parcel = event.parcel;
    Ok(())
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

fsm! {
    /// An order, from checkout to the parcel.
    pub machine Order = "order" {
        keeps OrderRecord;
        start created;
        created -> charged | cancelled;
        charged -> shipped;
        charged -> cancelled;
        end shipped, cancelled;
    }
}

/// A running program and the address of its console.
pub struct Site {
    pub runtime: Runtime,
    pub bank: Arc<Bank>,
    /// The console's own URL, without a slash at its end.
    pub url: String,
    folder: Folder,
}

impl Site {
    pub async fn new(name: &str) -> Site {
        Site::with(name, |console| console).await
    }

    /// A program whose console has these settings. By default, the actor is an admin called Ada.
    pub async fn with(name: &str, set: impl FnOnce(Console) -> Console) -> Site {
        let folder = Folder::new(&format!("browser-{name}"));
        let bank = Arc::new(Bank::default());
        let builder = Runtime::builder().database(folder.url("fsm.db")).data(Arc::clone(&bank)).data(crate::claims::Post::default());
        let runtime = builder.start().await.expect("the runtime starts");
        let url = serve(set(console(&runtime).authorize(|_| Access::Admin.named("ada")))).await;
        Site { runtime, bank, url, folder }
    }

    pub fn orders(&self) -> Handle<Order> {
        self.runtime.machine::<Order>()
    }

    pub fn database(&self) -> String {
        self.folder.url("fsm.db")
    }

    /// An order that rests in `created`.
    pub async fn order(&self, key: &str) {
        let card = "4242-4242".to_owned();
        self.orders().send(key, Checkout { cents: 12_99, card }).await.expect("the order is accepted");
        self.orders().settled(key).within(LIMIT).await.expect("it comes to rest");
    }

    /// Orders whose charge was declined.
    pub async fn declined(&self, keys: impl Iterator<Item = String>) {
        self.bank.declines.store(true, Ordering::Relaxed);
        for key in keys {
            self.order(&key).await;
            self.orders().send(&key, Charge).await.expect("the charge is accepted");
            self.orders().settled(&key).within(LIMIT).await.expect("it comes to rest");
        }
        self.bank.declines.store(false, Ordering::Relaxed);
    }
}

/// Serves a console below `/fsm` of a program's own address.
pub async fn serve(console: Console) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(async move { axum::serve(listener, Router::new().nest("/fsm", console.router())).await });
    format!("http://{address}/fsm")
}
