//! Many senders to one instance: the order of each sender is kept, and nothing is lost. A stored record can be read by newer code.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::sql_runner::{SqlRunner, bytes, run};
use crate::support::promise;

const SENDERS: u32 = 200;
const EACH: u32 = 5;

/// The sender and the number of each event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Minutes {
    said: Vec<(u32, u32)>,
    /// A field that an older version of this code did not have.
    #[serde(default)]
    language: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Convene;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Say {
    who: u32,
    number: u32,
}

#[verb]
async fn convened(_event: Convene) -> Result {
    Ok(())
}
#[verb]
#[retry("5s")]
async fn heard(ctx: &mut Ctx<'_>, record: &mut Minutes, event: Say) -> Result {
    if event.number == 2 && event.who.is_multiple_of(10) && ctx.attempt() == 1 {
        return Err(Failure::new("did not listen"));
    }
    record.said.push((event.who, event.number));
    record.language.push('.');
    Ok(())
}

fsm! {
    machine Meeting = "meeting" {
        keeps Minutes;
        start convened;
        any(convened, heard) -> heard;
    }
}

fn meetings() -> TestBedBuilder {
    TestBed::builder().only::<Meeting>().only::<SqlRunner>()
}

promise! {
    async fn two_hundred_senders_to_one_key_are_served_first_come_first_served_and_nothing_is_lost(bed in meetings()) {
        let meetings = bed.machine::<Meeting>();
        meetings.send("m", Convene).await.unwrap();
        let senders: Vec<_> = (0..SENDERS).map(|who| {
            let meetings = meetings.clone();
            tokio::spawn(async move {
                for number in 0..EACH {
                    meetings.send("m", Say { who, number }).await.unwrap();
                }
            })
        }).collect();
        for sender in senders {
            sender.await.unwrap();
        }
        bed.advance(Duration::from_secs(5 * u64::from(SENDERS))).await;
        let meeting = meetings.get("m").await.unwrap().unwrap();
        assert_eq!((meeting.version, meeting.inbox_len), (i64::from(SENDERS * EACH) + 1, 0));
        for who in 0..SENDERS {
            let numbers: Vec<_> = meeting.record.said.iter().filter(|(by, _)| *by == who).map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "sender {who}");
        }
    }
}

promise! {
    async fn a_field_that_is_added_to_a_record_is_covered_by_its_default(bed in meetings()) {
        let meetings = bed.machine::<Meeting>();
        meetings.send("m", Convene).await.unwrap();
        bed.run_until_idle().await;
        let before = bytes(bed, r#"{"said":[[7,0]]}"#);
        run(bed, format!("update fsm_instances set record = {before}, row_version = row_version + 1 where machine = 'meeting'")).await;
        assert_eq!(meetings.get("m").await.unwrap().unwrap().record.said, [(7, 0)]);
        meetings.send("m", Say { who: 8, number: 0 }).await.unwrap();
        bed.run_until_idle().await;
        let record = meetings.get("m").await.unwrap().unwrap().record;
        assert_eq!((record.said.as_slice(), record.language.as_str()), ([(7, 0), (8, 0)].as_slice(), "."));
    }
}
