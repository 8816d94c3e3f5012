//! Partitions for operators: creating, listing and checking them.

use fsm_core::partition::{MOST_PARTITIONS, partition_of};
use fsm_store::error::StoreError;
use fsm_store::open::Store;
use fsm_store::partition_place::PartitionPlace;
use fsm_store::partitions;
use fsm_store::settings::Settings;
use fsm_store::{machines, migrate};

use super::opening::{Opening, Source, clock_of};
use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::error::Error;

/// The number of keys that one statement of a check reads.
const TOGETHER: u32 = 1000;
/// The maximum number of keys that a problem names.
const NAMED: usize = 5;

/// A partition of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPartition {
    /// Its place. It has no URL inside a program.
    pub place: PartitionPlace,
    /// The name of its database without a password: the URL in the directory, or inside a program the name in messages. `None` for the database
    /// of the directory.
    pub database: Option<String>,
}

/// The partitions after [`create`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedPartitions {
    /// The partitions, by number.
    pub partitions: Vec<ListedPartition>,
    /// False if all of them existed already.
    pub is_new: bool,
}

/// The result of the check of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionCheck {
    /// The number of instances whose keys were examined.
    pub instances: u64,
    /// The problems that were found, each as one sentence. Empty if the partition is as the directory says.
    pub problems: Vec<String>,
}

/// Creates partitions in a PostgreSQL database without tables, each in the database of one of the `urls` by turns, or all in this database if
/// there are none. Partitions that exist already are used, so that this can be repeated after a failure.
///
/// Returns an `is_input` error if the number is not from 1 to [`MOST_PARTITIONS`], or if a database is not PostgreSQL, and an `is_database`
/// error if a database has tables already or another directory.
pub async fn create(opening: &Opening, number: u32, urls: &[String]) -> Result<CreatedPartitions, Error> {
    let Source::Url(url) = &opening.from else {
        return Err(Error::input("a running program has its tables already; create partitions before its first start"));
    };
    if let Some(other) = std::iter::once(url).chain(urls).position(|url| !is_postgres(url)) {
        let which = if other == 0 { "the database".to_owned() } else { format!("`--url` number {other}") };
        return Err(Error::input(format!("partitions are schemas of PostgreSQL, and {which} is not `postgres://…`")));
    }
    let places = partitions::places(number, urls)
        .ok_or_else(|| Error::input(format!("a database has from 1 to {MOST_PARTITIONS} partitions, not {number}")))?;
    let settings = settings(url, false);
    let store = Store::open(settings.clone()).await?;
    let clock = clock_of(&store, opening.held_at).await?;
    let created = partitions::create(&store, &settings, &places, clock.now()).await;
    store.close().await;
    let is_new = created?;
    Ok(CreatedPartitions { partitions: places.into_iter().map(ListedPartition::from).collect(), is_new })
}

/// All partitions, by number. Empty if the database has no partitions.
pub async fn list(opening: &Opening) -> Result<Vec<ListedPartition>, Error> {
    let url = match &opening.from {
        Source::EngineAccess(access) => return Ok(inside(access)),
        Source::Url(url) if !is_postgres(url) => return Ok(Vec::new()),
        Source::Url(url) => url,
    };
    let store = Store::open(settings(url, true)).await?;
    let places = partitions::directory(&store).await;
    store.close().await;
    Ok(places?.into_iter().map(ListedPartition::from).collect())
}

/// The partitions of a running program, by number. Empty if its database has no partitions.
pub fn inside(access: &EngineAccess) -> Vec<ListedPartition> {
    access.engines.all().iter().filter_map(|engine| ListedPartition::inside(engine)).collect()
}

/// Checks that the place has the partition that the directory says, that its tables are of this version, and that the key of each instance
/// belongs to it. Reads all keys in short statements, and changes nothing. A database that cannot be reached is a problem too.
pub async fn check(opening: &Opening, place: &PartitionPlace) -> PartitionCheck {
    let mut found = PartitionCheck::default();
    let examined = match &opening.from {
        Source::Url(url) => found.open_and_examine(&settings(url, true), place).await,
        Source::EngineAccess(access) => match access.engines.all().iter().find(|engine| engine.partition == Some(place.partition)) {
            Some(engine) => found.examine(&engine.store, place).await,
            None => Ok(()),
        },
    };
    if let Err(error) = examined {
        found.problems.push(error.to_string());
    }
    found
}

impl ListedPartition {
    /// The partition of an engine; `None` if its database has no partitions.
    fn inside(engine: &Engine) -> Option<ListedPartition> {
        let (partition, schema) = (engine.partition?, engine.store.schema()?.to_owned());
        let database = Some(engine.store.database().to_string());
        Some(ListedPartition { place: PartitionPlace { schema, ..PartitionPlace::new(partition, None) }, database })
    }
}

impl From<PartitionPlace> for ListedPartition {
    fn from(place: PartitionPlace) -> ListedPartition {
        ListedPartition { database: place.shown_url(), place }
    }
}

impl PartitionCheck {
    async fn open_and_examine(&mut self, directory: &Settings, place: &PartitionPlace) -> Result<(), StoreError> {
        let store = Store::open(place.settings(directory)).await?;
        let examined = self.examine(&store, place).await;
        store.close().await;
        examined
    }

    async fn examine(&mut self, store: &Store, place: &PartitionPlace) -> Result<(), StoreError> {
        if place.moving_to.is_some() {
            self.problems.push("a move was begun and has not ended; continue or cancel it".to_owned());
        }
        partitions::check(store, place).await?;
        migrate::check(&mut store.reader().await?.conn(), &store.place()).await?;
        let mut names: Vec<_> = machines::all(&mut store.reader().await?.conn()).await?.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        for machine in &names {
            let (mut misplaced, mut after) = (Vec::new(), Some(String::new()));
            while let Some(last) = after {
                let mut reader = store.reader().await?;
                let keys = partitions::examine_keys(&mut reader.conn(), place.partition, machine, &last, TOGETHER).await?;
                self.instances += keys.examined;
                misplaced.extend(keys.misplaced);
                after = keys.next;
            }
            self.problems.extend(told(machine, &misplaced, place.partition.of()));
        }
        Ok(())
    }
}

/// The sentence about instances of a machine that are in the wrong partition.
fn told(machine: &str, misplaced: &[String], of: u32) -> Option<String> {
    let named = misplaced.iter().take(NAMED).map(|key| format!("`{}` to {}", key.escape_debug(), partition_of(key, of)));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if misplaced.len() > NAMED { ", …" } else { "" };
    let count = misplaced.len();
    (count > 0).then(|| format!("{count} instances of `{}` belong to other partitions: {named}{more}", machine.escape_debug()))
}

pub(super) fn settings(url: &str, read_only: bool) -> Settings {
    Settings { read_only, connections: 2, ..Settings::new(url) }
}

pub(super) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres")
}
