//! A shutdown handle ends a runtime from anywhere, and tells the program's own server when to stop.

use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::support::Folder;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin;

#[verb]
#[retry("10ms")]
async fn begun(gate: Data<Gate>, _event: Begin) -> Result {
    gate.started.notify_one();
    gate.open.notified().await;
    Ok(())
}

fsm! {
    machine Work = "work" {
        start begun;
        end begun;
    }
}

#[derive(Clone, Default)]
struct Gate {
    started: Arc<Notify>,
    open: Arc<Notify>,
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_shutdown_handle_waits_for_running_attempts_and_stops_the_server_beside_them() {
    let folder = Folder::new("shutdown-handle");
    let gate = Gate::default();
    let runtime = Runtime::builder().database(folder.url("fsm.db")).only::<Work>().data(gate.clone()).start().await.unwrap();
    let work = runtime.machine::<Work>();
    let handle = runtime.shutdown_handle();
    let server = tokio::spawn(handle.requested());
    work.send("w-1", Begin).await.unwrap();
    gate.started.notified().await;
    assert!(!handle.is_requested() && !server.is_finished());

    let running = tokio::spawn(runtime.run_until_signal());
    let ends = [handle.clone(), handle.clone()].map(|handle| tokio::spawn(async move { handle.shutdown().await }));
    server.await.unwrap();
    assert!(handle.is_requested());
    gate.open.notify_one();
    for end in ends {
        end.await.unwrap().unwrap();
    }
    running.await.unwrap().unwrap();
    assert!(work.send("w-2", Begin).await.is_err(), "nothing is accepted any more");

    let bed = TestBed::builder().only::<Work>().data(gate).on(&folder.url("fsm.db")).await;
    assert_eq!(bed.machine::<Work>().get("w-1").await.unwrap().unwrap().status, Status::Completed, "it was waited for");
}

trait Gateway: Send + Sync {
    fn price(&self) -> u64;
}

struct Fixed(u64);
impl Gateway for Fixed {
    fn price(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ask;
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Offer {
    price: u64,
}

#[verb]
async fn asked(offer: &mut Offer, gateway: Data<dyn Gateway>, _event: Ask) -> Result {
    offer.price = gateway.price();
    Ok(())
}

fsm! {
    machine Offers = "offers" {
        keeps Offer;
        start asked;
        end asked;
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_verb_takes_a_value_by_its_trait() {
    let gateway: Arc<dyn Gateway> = Arc::new(Fixed(7));
    let bed = TestBed::builder().only::<Offers>().data_arc(gateway).sqlite().await;
    bed.machine::<Offers>().send("o", Ask).await.unwrap();
    let offer = bed.machine::<Offers>().settled("o").within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(offer.record.price, 7);
    let missing = Runtime::builder().database("sqlite::memory:").only::<Offers>().start().await.err().unwrap();
    assert!(missing.to_string().contains("takes `Data<dyn"), "{missing}");
}
