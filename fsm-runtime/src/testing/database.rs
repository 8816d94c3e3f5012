//! The database and the clock that the test beds of one test share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fsm_core::time::Timestamp;
use fsm_store::migrate;
use fsm_store::open::Store;
use fsm_store::settings::Settings;
#[cfg(feature = "postgres")]
use fsm_store::testing::Fresh;

use crate::clock::Clock;
use crate::error::Error;

/// The first time that every test bed's clock shows: 2030-01-01T00:00:00Z, in microseconds.
const BEGINNING_US: i64 = 1_893_456_000_000_000;

/// A database with all tables, and a clock that only a test moves.
#[derive(Clone)]
pub(super) struct TestDatabase {
    pub(super) store: Store,
    pub(super) url: String,
    clock_us: Arc<AtomicI64>,
    // Dropped last: the database can only be dropped when nobody uses it any more.
    pub(super) origin: Origin,
}

/// The origin of the database of a test.
#[derive(Clone)]
pub(super) enum Origin {
    /// SQLite in memory.
    #[cfg(feature = "sqlite")]
    Memory,
    /// Created on PostgreSQL for the test, and dropped with the last test bed that uses it.
    #[cfg(feature = "postgres")]
    Fresh(#[expect(dead_code, reason = "it is kept until it is dropped")] Arc<Fresh>),
    /// The test named it. It is kept.
    Given,
}

impl TestDatabase {
    pub(super) async fn open(url: &str, origin: Origin) -> Result<TestDatabase, Error> {
        let store = Store::open(Settings::new(url)).await?;
        let database = TestDatabase { store, url: url.to_owned(), clock_us: Arc::new(AtomicI64::new(BEGINNING_US)), origin };
        migrate::up(&database.store, database.clock().now()).await?;
        Ok(database)
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::Held(Arc::clone(&self.clock_us))
    }

    pub(super) fn set_time(&self, now: Timestamp) {
        self.clock_us.store(now.as_micros(), Ordering::SeqCst);
    }
}
