//! The database and the clock that the test beds of one test share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fsm_core::partition::Partition;
use fsm_core::time::Timestamp;
use fsm_store::migrate;
use fsm_store::open::Store;
#[cfg(feature = "postgres")]
use fsm_store::partition_place::PartitionPlace;
#[cfg(feature = "postgres")]
use fsm_store::partitions::create;
use fsm_store::settings::Settings;
#[cfg(feature = "postgres")]
use fsm_store::testing::{Fresh, Server};

use crate::clock::Clock;
use crate::engine::OpenDatabase;
use crate::error::Error;
#[cfg(feature = "postgres")]
use crate::error::ErrorKind;
#[cfg(feature = "postgres")]
use crate::start::FEWEST_CONNECTIONS;

/// The first time that every test bed's clock shows: 2030-01-01T00:00:00Z, in microseconds.
const BEGINNING_US: i64 = 1_893_456_000_000_000;

/// A database with all tables, and a clock that only a test moves.
#[derive(Clone)]
pub(super) struct TestDatabase {
    stores: Vec<(Store, Option<Partition>)>,
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
    /// The same, with this number of partitions.
    #[cfg(feature = "postgres")]
    Partitioned(u32, #[expect(dead_code, reason = "they are kept until they are dropped")] Arc<[Fresh]>),
    /// The test named it. It is kept.
    Given,
}

impl TestDatabase {
    pub(super) async fn open(url: &str, origin: Origin) -> Result<TestDatabase, Error> {
        let store = Store::open(Settings::new(url)).await?;
        let database = TestDatabase::of(vec![(store.clone(), None)], url, origin);
        migrate::up(&store, database.clock().now()).await?;
        Ok(database)
    }

    /// Creates this number of partitions, in two fresh databases by turns, on two servers if there are two. The first one has the directory.
    #[cfg(feature = "postgres")]
    pub(super) async fn partitioned(partitions: u32) -> Result<TestDatabase, Error> {
        let all: Vec<_> = (0..partitions).filter_map(|number| Partition::new(number, partitions)).collect();
        let fresh = async |server: Server| {
            let own: Vec<_> = all.iter().copied().skip(usize::from(server == Server::Second)).step_by(2).collect();
            let created = Fresh::with_partitions(server, &own).await;
            created.map_err(|error| Error::other(ErrorKind::System, format!("there is no PostgreSQL: {error}")))
        };
        let databases: Arc<[Fresh]> = Arc::new([fresh(Server::First).await?, fresh(Server::Second).await?]);
        let url = |number: usize| Some(databases[number % databases.len()].url().to_owned());
        let places: Vec<_> = all.iter().enumerate().map(|(number, partition)| PartitionPlace::new(*partition, url(number))).collect();
        let settings = Settings::new(databases[0].url());
        let directory = Store::open(settings.clone()).await?;
        create(&directory, &settings, &places, Timestamp::from_micros(BEGINNING_US)).await?;
        directory.close().await;
        let mut stores: Vec<(Store, Option<Partition>)> = Vec::with_capacity(places.len());
        for place in &places {
            let mut store = Store::open(Settings { connections: FEWEST_CONNECTIONS, ..place.settings(&settings) }).await?;
            // A failure counts the statements of all partitions.
            if let Some((first, _)) = stores.first() {
                store.share_failpoint(first);
            }
            stores.push((store, Some(place.partition)));
        }
        let origin = Origin::Partitioned(partitions, databases);
        Ok(TestDatabase::of(stores, &settings.url, origin))
    }

    fn of(stores: Vec<(Store, Option<Partition>)>, url: &str, origin: Origin) -> TestDatabase {
        TestDatabase { stores, url: url.to_owned(), clock_us: Arc::new(AtomicI64::new(BEGINNING_US)), origin }
    }

    /// The database, or its partitions.
    pub(super) fn databases(&self) -> impl Iterator<Item = OpenDatabase> {
        self.stores.iter().map(|(store, partition)| OpenDatabase {
            store: store.clone(),
            clock: self.clock(),
            partition: *partition,
            is_prepared: true,
        })
    }

    fn clock(&self) -> Clock {
        Clock::Held(Arc::clone(&self.clock_us))
    }

    pub(super) fn set_time(&self, now: Timestamp) {
        self.clock_us.store(now.as_micros(), Ordering::SeqCst);
    }
}
