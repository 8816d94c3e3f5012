//! An epoch ends with every write that is not its committer's, and with no other.

use super::samples::{Fresh, at, beginning};
use crate::store::epoch::{Epoch, Epochs};
use crate::store::open::{Settings, Store};
use crate::store::write::write;
use crate::store::{claim, sessions};

/// The committer has its turn, and writes.
async fn turn(store: &Store, epochs: &Epochs) -> Option<Epoch> {
    let (mut tx, epoch) = store.begin_in_epoch(epochs).await.unwrap();
    let changes = beginning(&uuid::Uuid::new_v4().to_string(), None);
    write(&mut tx.conn(), &[&changes]).await.unwrap();
    tx.commit().await.unwrap();
    epoch
}

#[tokio::test]
async fn an_epoch_lasts_while_only_its_committer_writes() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    let epochs = Epochs::default();
    let first = turn(&store, &epochs).await;
    assert!(first.is_some());
    assert_eq!(epochs.lasting(), None, "nobody knows yet whether it lasts");
    assert_eq!(turn(&store, &epochs).await, first);
    assert_eq!(epochs.lasting(), first);
    let served = claim::Served { machine: "payment".into(), verbs: vec!["created".into()], states: vec![], timed: vec![], events: vec![] };
    assert_eq!(store.claim(super::samples::session(), &served, 1, at(100), claim::Which::AllBut(&[])).await.unwrap().claimed.len(), 1);
    assert_eq!(turn(&store, &epochs).await, first, "a claim writes no instance");
}

#[tokio::test]
async fn whoever_else_writes_ends_an_epoch() {
    let fresh = Fresh::file();
    let store = fresh.open().await;
    let (epochs, another) = (Epochs::default(), Epochs::default());
    let mut last = turn(&store, &epochs).await;
    let mut ended = async |by: &str| {
        let now = turn(&store, &epochs).await;
        assert!(now.is_some() && now != last && epochs.lasting().is_none(), "{by} ends it");
        last = now;
    };
    turn(&store, &another).await;
    ended("another committer on the same connection").await;
    store.begin().await.unwrap().commit().await.unwrap();
    ended("a transaction of the process that is no committer's").await;
    drop(store.begin().await.unwrap());
    ended("one that was given up, and its connection with it").await;
    let process = Store::open(Settings::new(fresh.url())).await.unwrap();
    turn(&process, &Epochs::default()).await;
    ended("another process").await;
    let mut apart = store.apart().await.unwrap();
    assert!(!sessions::renew(&mut apart.conn(), super::samples::session(), at(99)).await.unwrap());
    assert_eq!(turn(&store, &epochs).await, epochs.lasting(), "who changes nothing ends nothing");
    assert!(epochs.lasting().is_some());
}

#[tokio::test]
async fn where_nobody_can_look_meanwhile_there_is_none() {
    let store = Fresh::Memory.open().await;
    assert_eq!(turn(&store, &Epochs::default()).await, None);
    let fresh = Fresh::postgres().await;
    assert_eq!(turn(&fresh.open().await, &Epochs::default()).await, None);
}
