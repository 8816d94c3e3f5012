//! Old and new processes side by side on a database with partitions.

use std::time::Duration;

use fsm::prelude::*;
use fsm::{Status, partition_of};
use serde::{Deserialize, Serialize};

use crate::{new, new_code, old, old_code};

const PARTITIONS: u32 = 2;
const A_SECOND: Duration = Duration::from_secs(1);

/// Sends an address to a parcel, a second later, and then a shipment.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Forward {
    to: String,
}

#[verb]
async fn forwarded(ctx: &mut Ctx<'_>, event: Forward) -> Result {
    ctx.send::<new::Parcel>(&event.to, new::Address { failures: 0 })?.after(A_SECOND);
    ctx.send::<new::Parcel>(&event.to, new::Ship)?.after(A_SECOND);
    Ok(())
}

fsm! {
    machine Depot = "depot" {
        start forwarded;
        end forwarded;
    }
}

fn key_in(form: &str, partition: u32) -> String {
    (0..).map(|n| format!("{form}-{n}")).find(|key| partition_of(key, PARTITIONS) == partition).unwrap()
}

#[tokio::test]
async fn an_event_that_only_new_code_has_is_left_to_it_by_old_code_that_serves_the_outbox_of_the_partition() {
    let old = old_code().only::<Depot>().partitions(PARTITIONS).await;
    let new = new_code().only::<Depot>().beside(&old).await.unwrap();
    let (depot, parcel) = (key_in("depot", 0), key_in("parcel", 1));
    old.machine::<old::Parcel>().send(&parcel, old::Pack { failures: 0 }).await.unwrap();
    old.run_until_idle().await;
    new.machine::<Depot>().send(&depot, Forward { to: parcel.clone() }).await.unwrap();
    new.run_until_idle().await;

    // Both events are due, and only the old process is there.
    old.advance(A_SECOND * 2).await;
    let parcels = new.machine::<new::Parcel>();
    let waits = parcels.get(&parcel).await.unwrap().unwrap();
    assert_eq!((waits.state, waits.inbox_len), (Some(new::ParcelState::Packed), 0));
    new.advance(Duration::from_secs(20)).await;
    assert_eq!(parcels.get(&parcel).await.unwrap().unwrap().status, Status::Completed);
    let history = new.machine::<Depot>().history(&depot).await.unwrap();
    assert!(history.iter().all(|entry| !entry.to_string().contains("rejected")), "{history:#?}");
    assert!(new.check_invariants().await.is_empty());
}
