//! The connections on which the database's time is measured.

use std::sync::Arc;

use fsm_store::open::Store;
use fsm_store::settings::Settings;
use fsm_store::testing::Fresh;

use super::{Engine, OpenDatabase};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::data_protection::DataProtection;
use crate::limits::Limits;

#[tokio::test(flavor = "multi_thread")]
async fn a_process_measures_the_time_on_each_new_connection_and_on_no_other() {
    let fresh = Fresh::migrated().await.unwrap();
    let store = Store::open(Settings::new(fresh.url())).await.unwrap();
    let catalog = Catalog::new(&[], false).unwrap();
    // A process without work, like a client.
    let engine = Engine::new(
        OpenDatabase { store, clock: Clock::database(), partition: None, is_prepared: true },
        catalog,
        (Limits::default(), DataProtection::default()),
        None,
    );
    let mut first = engine.engine_reader().await.unwrap();
    let number = first.number();
    assert!(!engine.clock.is_due(number), "it was measured on this one");
    let now = engine.clock.now();
    drop(first);
    let (rows, mut again) = (engine.store.failpoint().rows(), engine.engine_reader().await.unwrap());
    assert_eq!((again.number(), engine.store.failpoint().rows()), (number, rows), "nothing was asked");
    again.conn().script("select pg_terminate_backend(pg_backend_pid())").await.unwrap_err();
    drop(again);
    first = engine.engine_reader().await.unwrap();
    assert!(first.number() > number && !engine.clock.is_due(first.number()));
    assert!(engine.clock.now() >= now);
    drop((first, Arc::clone(&engine)));
}
