//! The file version changes with every write that is not its committer's, except a claim, and with no other write.

use fsm_core::commit::rows::FileVersion;

use super::samples::{at, beginning};
use crate::open::Store;
use crate::settings::Settings;
use crate::sqlite::file_versions::FileVersions;
use crate::testing::EmptyDatabase;
use crate::write::write;
use crate::{claim, sessions};

/// Runs a transaction of the committer that writes an instance.
async fn turn(store: &Store, file_versions: &FileVersions) -> Option<FileVersion> {
    let (mut tx, file_version) = store.begin_at_file_version(file_versions).await.unwrap();
    let changes = beginning(&uuid::Uuid::new_v4().to_string(), None);
    write(&mut tx.conn(), &[&changes]).await.unwrap();
    tx.commit().await.unwrap();
    file_version
}

#[tokio::test]
async fn a_file_version_lasts_while_only_its_committer_writes() {
    let fresh = EmptyDatabase::file();
    let store = fresh.open().await;
    let file_versions = FileVersions::default();
    let first = turn(&store, &file_versions).await;
    assert!(first.is_some());
    assert_eq!(file_versions.lasting(), None, "nobody knows yet whether it lasts");
    assert_eq!(turn(&store, &file_versions).await, first);
    assert_eq!(file_versions.lasting(), first);
    let served = claim::Served { machine: "payment".into(), verbs: vec!["created".into()], states: vec![], timed: vec![], events: vec![] };
    assert_eq!(
        store.claim(super::samples::session(), &served, 1.into(), at(100), claim::Which::AllBut(&[])).await.unwrap().claimed.len(),
        1
    );
    assert_eq!(turn(&store, &file_versions).await, first, "a claim writes no instance");
}

#[tokio::test]
async fn whoever_else_writes_ends_a_file_version() {
    let fresh = EmptyDatabase::file();
    let store = fresh.open().await;
    let (file_versions, another) = (FileVersions::default(), FileVersions::default());
    let mut last = turn(&store, &file_versions).await;
    let mut ended = async |by: &str| {
        let now = turn(&store, &file_versions).await;
        assert!(now.is_some() && now != last && file_versions.lasting().is_none(), "{by} ends it");
        last = now;
    };
    turn(&store, &another).await;
    ended("another committer on the same connection").await;
    store.begin().await.unwrap().commit().await.unwrap();
    ended("a transaction of the process that is no committer's").await;
    drop(store.begin().await.unwrap());
    ended("one that was given up, and its connection with it").await;
    let process = Store::open(Settings::new(fresh.url())).await.unwrap();
    turn(&process, &FileVersions::default()).await;
    ended("another process").await;
    let mut dedicated = store.dedicated().await.unwrap();
    sessions::leave(&mut dedicated.conn(), super::samples::session()).await.unwrap();
    assert_eq!(turn(&store, &file_versions).await, file_versions.lasting(), "who changes nothing ends nothing");
    assert!(file_versions.lasting().is_some());
}

#[tokio::test]
async fn where_nobody_can_look_meanwhile_there_is_none() {
    let store = EmptyDatabase::Memory.open().await;
    assert_eq!(turn(&store, &FileVersions::default()).await, None);
    let fresh = EmptyDatabase::postgres().await;
    assert_eq!(turn(&fresh.open().await, &FileVersions::default()).await, None);
}
