//! The first steps of every process with a database: open it, migrate it, and store the machine definitions.

use std::time::{Duration, Instant};

use fsm_core::duration;
use fsm_core::partition::Partition;
use fsm_store::error::Class;
use fsm_store::open::Store;
use fsm_store::partition_place::PartitionPlace;
use fsm_store::partitions;
use fsm_store::settings::Settings;
use fsm_store::{limits, machines, migrate as migrations};
use futures_util::future::{BoxFuture, join_all};

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::committer::retry::{backoff, is_worth_a_line};
use crate::data::DataMap;
use crate::data_protection::DataProtection;
use crate::drift;
use crate::encode;
use crate::engine::{Engine, OpenDatabase};
use crate::error::{Error, ErrorKind, Kind};
use crate::health::DatabaseHealth;
use crate::limit::{self, DeclaredLimits};
use crate::reconciler;
use crate::reconciler_state::Mappings;
use crate::search;
use crate::session;

/// Calls `start` until it succeeds, fails permanently, or `patience` ends. `start` gets the remaining time. Its future is boxed, because
/// the `main` function of a program could otherwise exceed the compiler's type size limit.
pub(crate) async fn patiently<'s, T>(patience: Duration, start: impl Fn(Duration) -> BoxFuture<'s, Result<T, Error>>) -> Result<T, Error> {
    let (begun, mut tries) = (Instant::now(), 0);
    loop {
        let error = match start(patience.saturating_sub(begun.elapsed())).await {
            Err(error) if error.may_pass() => error,
            done => return done,
        };
        let wait = backoff(Class::Unavailable, tries);
        if begun.elapsed().saturating_add(wait) >= patience {
            return Err(error);
        }
        if is_worth_a_line(tries) {
            tracing::warn!(%error, patience = %duration::display(patience), "the database cannot be used yet, and is tried again");
        }
        tokio::time::sleep(wait).await;
        tries += 1;
    }
}

/// The minimum number of connections to a database or to a partition: one for each purpose.
pub(crate) const FEWEST_CONNECTIONS: u32 = 3;
/// The minimum time that a database gets to answer.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);

/// Opens and migrates a database, or each of its partitions, and measures the clocks. A database that does not answer within `limit`, and at
/// least a second, is an error. A partition that cannot be reached is not, if another one can: [`prepare`] is called for it later.
pub(crate) async fn open(settings: Settings, limit: Duration) -> Result<Vec<OpenDatabase>, Error> {
    let store = open_store(settings.clone(), limit).await?;
    let places = partitions::directory(&store).await?;
    if places.is_empty() {
        return Ok(vec![prepared(store, None).await?]);
    }
    // The connections are shared equally.
    let connections = (settings.connections / places[0].partition.of()).max(FEWEST_CONNECTIONS);
    let settings = Settings { connections, ..settings };
    let opened = join_all(places.iter().map(|place| open_partition(place, &settings, limit))).await;
    let has_one = opened.iter().any(Result::is_ok);
    let databases = places.iter().zip(opened).map(|(place, opened)| match opened {
        Err(error) if has_one && may_join_later(&error) => {
            tracing::warn!(partition = place.partition.number(), %error, "the partition cannot be opened; the others start without it");
            unprepared(place, &settings, &store)
        }
        opened => opened,
    });
    let databases = databases.collect();
    store.close().await;
    databases
}

/// True if the partition may be usable later: its server cannot be reached, or does not answer.
fn may_join_later(error: &Error) -> bool {
    error.may_pass() || matches!(error.cause(), Kind::Other(ErrorKind::Database, _))
}

async fn open_partition(place: &PartitionPlace, directory: &Settings, limit: Duration) -> Result<OpenDatabase, Error> {
    let store = open_store(place.settings(directory), limit).await?;
    partitions::check(&store, place).await?;
    prepared(store, Some(place.partition)).await
}

/// A partition that cannot be reached. Only PostgreSQL has partitions.
#[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "only PostgreSQL has partitions"))]
fn unprepared(place: &PartitionPlace, settings: &Settings, directory: &Store) -> Result<OpenDatabase, Error> {
    #[cfg(feature = "postgres")]
    {
        let store = Store::unopened(place.settings(settings), directory)?;
        Ok(OpenDatabase { store, clock: Clock::database(), partition: Some(place.partition), is_prepared: false })
    }
    #[cfg(not(feature = "postgres"))]
    unreachable!("only PostgreSQL has partitions")
}

/// Does for a partition that could not be reached at the start what [`open`] does for the others.
pub(crate) async fn prepare(engine: &Engine) -> Result<(), Error> {
    if let Some(partition) = engine.partition {
        partitions::check_itself(&engine.store, partition).await?;
    }
    measure_and_migrate(&engine.store, &engine.clock).await
}

/// Calls `start` for a partition that could not be reached until it succeeds, and logs why it does not. Returns false if the process ends first.
pub(crate) async fn at_last<'s>(engine: &Engine, start: impl Fn() -> BoxFuture<'s, Result<(), Error>>) -> bool {
    let (mut tries, partition) = (0, engine.partition.map(Partition::number));
    while !engine.queue.is_closed() {
        let Err(error) = start().await else {
            tracing::info!(partition, "the partition can be opened now, and is used");
            return true;
        };
        engine.observations.note(|observed| observed.database = DatabaseHealth::Unreachable(error.to_string()));
        if is_worth_a_line(tries) {
            tracing::warn!(partition, %error, "the partition cannot be opened yet, and is tried again");
        }
        tokio::time::sleep(backoff(Class::Unavailable, tries)).await;
        tries += 1;
    }
    false
}

async fn open_store(settings: Settings, limit: Duration) -> Result<Store, Error> {
    let limit = limit.max(SHORTEST_LIMIT);
    let opened = tokio::time::timeout(limit, Store::open(settings)).await.map_err(|_| {
        let within = duration::display(limit);
        Error::other(ErrorKind::Database, format!("the database did not answer within {within}; check that it runs and can be reached"))
    });
    Ok(opened??)
}

async fn prepared(store: Store, partition: Option<Partition>) -> Result<OpenDatabase, Error> {
    let clock = if store.is_postgres() { Clock::database() } else { Clock::System };
    measure_and_migrate(&store, &clock).await?;
    Ok(OpenDatabase { store, clock, partition, is_prepared: true })
}

async fn measure_and_migrate(store: &Store, clock: &Clock) -> Result<(), Error> {
    let mut connection = store.dedicated().await?;
    session::measure(store, clock, &mut connection).await?;
    Ok(store.naming(migrations::up(store, clock.now()).await)?)
}

/// The result of [`register_machines`].
#[derive(Default)]
pub(crate) struct Registered {
    pub(crate) mappings: Mappings,
    /// The database has limits.
    pub(crate) has_limits: bool,
}

/// Checks that every `Data<T>` is present and that the limit of each verb exists, renames mapped names, sets missing timers, fills in new search
/// fields, and stores the limits and every machine's definition. [`drift::check`] was called before, for all partitions together.
pub(crate) async fn register_machines(
    store: &Store,
    clock: &Clock,
    catalog: &Catalog,
    (data, data_protection): (&DataMap, &DataProtection),
    mappings: Mappings,
    declared_limits: &DeclaredLimits,
) -> Result<Registered, Error> {
    catalog.check_data(data)?;
    limit::check_names(declared_limits)?;
    drift::apply_all(store, clock, catalog, &mappings).await?;
    for known in catalog.iter() {
        reconciler::set_timers(store, clock, known, mappings.get(&known.machine.name), data_protection).await?;
        search::fill_new_fields(store, known, data_protection).await?;
    }
    let mut tx = store.begin().await?;
    tx.conn().wait_for_locks().await?;
    for known in catalog.iter() {
        let (definition, hash) = encode::definition(&known.machine)?;
        store.naming(machines::remember(&mut tx.conn(), &known.machine.name, &hash, &definition, clock.now()).await)?;
    }
    for (name, declared) in declared_limits {
        store.naming(limits::declare(&mut tx.conn(), name, &declared.setting, clock.now()).await)?;
    }
    let known = store.naming(limits::all(&mut tx.conn()).await)?;
    limit::check_verbs(catalog, &known)?;
    tx.commit().await?;
    Ok(Registered { mappings, has_limits: !known.is_empty() })
}
