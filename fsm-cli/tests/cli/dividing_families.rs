//! Export and import of children that are in other partitions than their parents.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_core::partition::partition_of;
use serde::{Deserialize, Serialize};

use crate::support::{File, To, fsm_at, healthy};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Counts {
    ended: u64,
    times: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hire {
    workers: Vec<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Add {
    workers: Vec<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Leave;

#[verb]
async fn hired(ctx: &mut Ctx<'_>, event: Hire) -> Result {
    ctx.start_children::<Worker>(event.workers.iter().map(|key| (key, Begin)))?;
    Ok(())
}
#[verb]
async fn added(ctx: &mut Ctx<'_>, event: Add) -> Result {
    ctx.start_children::<Worker>(event.workers.iter().map(|key| (key, Begin)))?;
    Ok(())
}
#[verb]
async fn alone(counts: &mut Counts, all: ChildrenEnded) -> Result {
    (counts.ended, counts.times) = (all.count(), counts.times + 1);
    Ok(())
}
#[verb]
async fn working(_event: Begin) -> Result {
    Ok(())
}
#[verb]
async fn gone(_event: Leave) -> Result {
    Ok(())
}

fsm! {
    machine Crew = "crew" {
        keeps Counts;
        start hired;
        hired stays on added;
        hired -> alone;
        end alone;
    }
}
fsm! {
    machine Worker = "worker" {
        start working;
        working -> gone;
        end gone;
    }
}

fn crew() -> TestBedBuilder {
    TestBed::builder().only::<Crew>().only::<Worker>()
}

async fn says(bed: &TestBed, url: &str, words: &[&str], code: u8, part: &str) {
    let all: Vec<&str> = ["--database", url].iter().chain(words).copied().collect();
    let said = fsm_at(Some(bed.now()), To::Pipe, &all).await;
    assert!(said.code == code && said.talk.contains(part), "fsm {}: {said:?}", words.join(" "));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_in_other_partitions_are_children_of_the_same_parent_after_an_import() {
    let workers: Vec<String> = (0..6).map(|n| format!("worker-{n}")).collect();
    assert!(workers.iter().any(|key| partition_of(key, 4) != partition_of("c-1", 4)), "some of them are elsewhere");
    let source = crew().partitions(4).await;
    // One that was started in the partition of its parent could be apart from it afterwards.
    let elsewhere: Vec<String> = workers.into_iter().filter(|key| partition_of(key, 4) != partition_of("c-1", 4)).collect();
    source.machine::<Crew>().send("c-1", Hire { workers: elsewhere.clone() }).await.unwrap();
    source.run_until_idle().await;
    source.machine::<Worker>().send(&elsewhere[0], Leave).await.unwrap();
    source.run_until_idle().await;
    let (export, joined) = (File::new(), File::new());
    says(&source, source.url(), &["export", "--live", "-o", export.path()], 0, "").await;
    let refused = "is a child of an instance in another partition, and has not ended";
    says(&source, joined.path(), &["import", export.path()], 1, refused).await;

    let target = crew().partitions(2).await;
    says(&source, target.url(), &["import", export.path()], 0, "").await;
    target.advance(source.now().since(target.now())).await;
    target.run_until_idle().await;
    healthy(&target).await;
    let crews = target.machine::<Crew>();
    // The same children, wherever they are now.
    crews.send("c-1", Add { workers: elsewhere.clone() }).await.unwrap();
    target.run_until_idle().await;
    let counted = crews.get("c-1").await.unwrap().unwrap();
    assert_eq!((counted.status, counted.children.iter().map(|count| count.count).sum::<u64>()), (Status::Running, elsewhere.len() as u64));
    for key in &elsewhere[1..] {
        target.machine::<Worker>().send(key, Leave).await.unwrap();
    }
    target.run_until_idle().await;
    let done = crews.get("c-1").await.unwrap().unwrap();
    assert_eq!(done.record, Counts { ended: elsewhere.len() as u64, times: 1 });
    healthy(&target).await;

    // All have ended, so that a database without partitions can have them.
    let ended = File::new();
    says(&target, target.url(), &["export", "--live", "-o", ended.path()], 0, "").await;
    says(&target, joined.path(), &["import", ended.path()], 0, "").await;
    let joined = crew().on(&joined.url()).await;
    let counted = joined.machine::<Crew>().get("c-1").await.unwrap().unwrap();
    assert_eq!(counted.children.iter().map(|count| count.count).sum::<u64>(), elsewhere.len() as u64);
    healthy(&joined).await;
}
