//! Many sends in one call: one durable answer for each item, in order, with bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{SendItem, SendOutcome};
use serde::{Deserialize, Serialize};

use crate::support::promise;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arrive {
    number: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Weigh {
    number: u32,
}

/// The numbers in the order in which their events were processed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Weighed(Vec<u32>);

#[verb]
async fn arrived(event: Arrive) -> Result {
    let _ = event.number;
    Ok(())
}
#[verb]
async fn weighed(record: &mut Weighed, event: Weigh) -> Result {
    record.0.push(event.number);
    Ok(())
}

fsm! {
    machine Parcel = "many-parcel" {
        keeps Weighed;
        start arrived;
        any(arrived, weighed) -> weighed;
    }
}

fn parcels() -> TestBedBuilder {
    TestBed::builder().only::<Parcel>()
}

promise! {
    async fn every_item_has_its_answer_in_the_order_of_the_items(bed in parcels()) {
        let parcels = bed.machine::<Parcel>();
        parcels.send("p-3", Arrive { number: 0 }).await.unwrap();
        bed.run_until_idle().await;
        let too_long = "k".repeat(256);
        let keys = (0..2500).map(|n| if n == 7 { too_long.clone() } else { format!("p-{n}") });
        let answers = parcels.send_many(keys.map(|key| (key, Arrive { number: 1 }))).collect().await.unwrap();
        assert_eq!(answers.len(), 2500);
        for (n, answer) in answers.iter().enumerate() {
            match n {
                3 => assert!(answer.as_ref().unwrap_err().is_refused(), "{answer:?}"),
                7 => assert!(answer.as_ref().unwrap_err().is_input(), "{answer:?}"),
                _ => assert_eq!(answer.as_ref().unwrap().outcome, SendOutcome::Started, "item {n}"),
            }
        }
        bed.run_until_idle().await;
        let count: u64 = parcels.counts().await.unwrap().iter().map(|count| count.count).sum();
        assert_eq!(count, 2499);
    }
}

promise! {
    async fn events_for_one_instance_keep_their_order_among_many_others(bed in parcels()) {
        let parcels = bed.machine::<Parcel>();
        parcels.send_many((0..4).map(|n| (format!("p-{n}"), Arrive { number: n }))).collect().await.unwrap();
        let items = (0..400).map(|n| (format!("p-{}", n % 4), Weigh { number: n }));
        let answers = parcels.send_many(items).collect().await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        bed.run_until_idle().await;
        for n in 0..4 {
            let record = parcels.get(format!("p-{n}")).await.unwrap().unwrap().record;
            assert_eq!(record.0, (0..400).filter(|m| m % 4 == n).collect::<Vec<_>>());
        }
    }
}

promise! {
    async fn an_item_has_a_deduplication_id_and_a_delay_of_its_own(bed in parcels()) {
        let parcels = bed.machine::<Parcel>();
        let items = || (0..3).map(|n| SendItem::new(format!("p-{n}"), Arrive { number: n }).dedup(format!("import-{n}")));
        let outcomes = async |items: Vec<SendItem<Arrive>>| {
            let answers = parcels.send_many(items).collect().await.unwrap();
            answers.into_iter().map(|answer| answer.unwrap().outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(items().collect()).await, [SendOutcome::Started; 3]);
        bed.run_until_idle().await;
        let later = SendItem::new("p-9", Arrive { number: 9 }).after(Duration::from_secs(60));
        let again = items().chain([later]).collect();
        use SendOutcome::{Duplicate, Scheduled};
        assert_eq!(outcomes(again).await, [Duplicate, Duplicate, Duplicate, Scheduled]);
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!(parcels.get("p-9").await.unwrap().unwrap().state, Some(ParcelState::Arrived));
    }
}

promise! {
    async fn items_are_taken_only_as_fast_as_they_are_sent(bed in parcels()) {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let items = (0_u32..).map(move |number| {
            counted.fetch_add(1, Ordering::SeqCst);
            (format!("p-{number}"), Arrive { number })
        });
        let parcels = bed.machine::<Parcel>();
        let mut sends = parcels.send_many(items);
        for answered in 1..=1500 {
            assert_eq!(sends.next().await.unwrap().unwrap().outcome, SendOutcome::Started);
            assert!(taken.load(Ordering::SeqCst) <= answered + 1000, "no more than 1,000 are in progress");
        }
        drop(sends);
        bed.run_until_idle().await;
    }
}
