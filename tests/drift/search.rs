//! Search fields across a deploy: instances that the old code wrote are found by the fields that the new code declares.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

use crate::sql_runner::SqlRunner;
use crate::support::promise;
use crate::{refuse, refuse_no_more};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Order {
    customer: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    of: String,
}

#[verb]
pub async fn placed(record: &mut Order, event: Place) -> Result {
    record.customer = event.of;
    Ok(())
}

mod old {
    use super::{Order, placed};

    fsm::fsm! {
        pub machine Shop = "searched" {
            keeps Order;
            start placed;
            placed -> placed;
        }
    }
}

mod new {
    use super::{Order, placed};

    fsm::fsm! {
        pub machine Shop = "searched" {
            keeps Order, search(customer);
            start placed;
            placed -> placed;
        }
    }
}

async fn send(bed: &TestBed, key: &str, of: &str) {
    bed.machine::<old::Shop>().send(key, Place { of: of.to_owned() }).await.unwrap();
    bed.run_until_idle().await;
}

async fn of_customer(bed: &TestBed, customer: &str) -> Vec<String> {
    let found = bed.machine::<new::Shop>().list(Filter::default().field("customer", customer)).await.unwrap();
    found.items.into_iter().map(|one| one.key).collect()
}

promise! {
    async fn instances_that_existed_before_a_field_are_found_once_the_start_has_returned(
        old in TestBed::builder().only::<old::Shop>()
    ) {
        for n in 0..450 {
            old.machine::<old::Shop>().send(format!("o-{n:03}"), Place { of: format!("c-{}", n % 3) }).await.unwrap();
        }
        old.run_until_idle().await;
        let new = TestBed::builder().only::<new::Shop>().beside(old).await.unwrap();
        for customer in ["c-0", "c-1", "c-2"] {
            assert_eq!(new.machine::<new::Shop>().list(Filter::default().field("customer", customer).limit(1000)).await.unwrap().items.len(), 150);
        }
    }
}

promise! {
    async fn the_values_that_old_code_changes_beside_the_new_are_followed(old in TestBed::builder().only::<old::Shop>()) {
        send(old, "o", "c-1").await;
        let new = TestBed::builder().only::<new::Shop>().beside(old).await.unwrap();
        assert_eq!(of_customer(&new, "c-1").await, ["o"]);
        send(old, "o", "c-2").await;
        send(old, "later", "c-2").await;
        new.advance(Duration::from_secs(120)).await;
        assert!(of_customer(&new, "c-1").await.is_empty());
        assert_eq!(of_customer(&new, "c-2").await, ["later", "o"]);
    }
}

promise! {
    async fn a_field_that_was_removed_and_declared_again_has_the_values_of_now(first in TestBed::builder().only::<new::Shop>()) {
        first.machine::<new::Shop>().send("o", Place { of: "c-1".to_owned() }).await.unwrap();
        first.run_until_idle().await;
        first.outage(Duration::from_secs(1)).await;
        let without = TestBed::builder().only::<old::Shop>().beside(first).await.unwrap();
        send(&without, "o", "c-2").await;
        first.outage(Duration::from_secs(1)).await;
        let again = TestBed::builder().only::<new::Shop>().beside(first).await.unwrap();
        assert_eq!(of_customer(&again, "c-2").await, ["o"]);
        assert!(of_customer(&again, "c-1").await.is_empty());
    }
}

promise! {
    async fn an_instance_whose_field_cannot_be_written_keeps_no_other_from_it_nor_the_start(
        old in TestBed::builder().only::<old::Shop>().only::<SqlRunner>()
    ) {
        for key in ["good", "bad", "other"] {
            send(old, key, "c-1").await;
        }
        refuse(old, "insert on fsm_search", "new.key = 'bad'").await;
        let new = TestBed::builder().only::<new::Shop>().beside(old).await.unwrap();
        assert_eq!(of_customer(&new, "c-1").await, ["good", "other"]);
        refuse_no_more(old, "fsm_search").await;
    }
}
