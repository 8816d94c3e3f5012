//! The directory of partitions on PostgreSQL. A partition is a schema with all tables, on the server of the directory or on another one.

use fsm_core::partition::{MOST_PARTITIONS, Partition};
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::migrate;
use super::open::Store;
use super::partition_place::PartitionPlace;
use super::settings::Settings;
use super::sql;
use super::values::values;

/// A page of the keys of a partition's instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExaminedKeys {
    /// The number of keys on the page.
    pub examined: u64,
    /// The keys among them that belong to another partition.
    pub misplaced: Vec<String>,
    /// The last key of the page, if there may be another page.
    pub next: Option<String>,
}

/// The tables of a schema.
struct Tables {
    directory: bool,
    partition: bool,
    instances: bool,
}

/// The places of all partitions, by number. Empty if the database has no directory: it is not partitioned.
///
/// Returns `Err(Partition)` if the schema is itself a partition, or if the directory does not list each partition once.
pub async fn directory(store: &Store) -> Result<Vec<PartitionPlace>> {
    if !store.is_postgres() {
        return Ok(Vec::new());
    }
    let mut reader = store.reader().await?;
    let tables = tables(&mut reader.conn()).await?;
    if tables.partition {
        return Err(is_partition(store));
    }
    if tables.directory { listed(store, &mut reader.conn()).await } else { Ok(Vec::new()) }
}

async fn listed(store: &Store, conn: &mut Conn<'_>) -> Result<Vec<PartitionPlace>> {
    let rows = conn.rows(&sql::PARTITIONS, &[]).await?;
    if rows.is_empty() {
        return Err(unfit(store, "has a directory `fsm_partitions` without a partition"));
    }
    let of = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut places = Vec::with_capacity(rows.len());
    for (number, row) in (0..of).zip(&rows) {
        let partition = Partition::new(number, of).filter(|_| row.get::<i64>(0).is_ok_and(|listed| listed == i64::from(number)));
        let Some(partition) = partition else {
            return Err(unfit(store, &format!("has a directory of {of} partitions in which number {number} is not the next")));
        };
        places.push(PartitionPlace { partition, schema: row.get(1)?, url: row.get(2)?, place_number: row.get(3)?, moving_to: row.get(4)? });
    }
    Ok(places)
}

/// Returns `Err(Partition)` unless the open store is the partition that the directory says it is.
pub async fn check(store: &Store, place: &PartitionPlace) -> Result<()> {
    let mut reader = store.reader().await?;
    let known = if tables(&mut reader.conn()).await?.partition { itself(&mut reader.conn()).await? } else { None };
    let (number, of) = (place.partition.number(), place.partition.of());
    match known {
        Some(known) if known == (i64::from(number), i64::from(of), place.place_number) => Ok(()),
        Some((known, _, place_number)) if known == i64::from(number) && place_number != place.place_number => Err(unfit(
            store,
            &format!(
                "is partition {number} of {of} as it was at place number {place_number}, and the directory lists place number {}",
                place.place_number
            ),
        )),
        Some((other, others, _)) => Err(unfit(
            store,
            &format!("is partition {other} of {others}, and the directory lists it as {number} of {of}; correct the directory"),
        )),
        None => Err(unfit(store, &format!("is no partition, and the directory lists it as {number} of {of}; run `fsm partitions init`"))),
    }
}

/// Returns `Err(Partition)` unless the open store is this partition, at whatever place.
pub async fn check_itself(store: &Store, partition: Partition) -> Result<()> {
    let (number, of) = (partition.number(), partition.of());
    // A table that is missing is an error of the statement, after which the directory is read.
    match itself(&mut store.reader().await?.conn()).await? {
        Some((known, others, _)) if (known, others) == (i64::from(number), i64::from(of)) => Ok(()),
        _ => Err(unfit(store, &format!("is not partition {number} of {of}, as which the directory lists it"))),
    }
}

/// Returns true if statements on a user's connection find the tables of this partition.
pub async fn is_on(conn: &mut Conn<'_>, partition: Partition) -> Result<bool> {
    let known = if tables(conn).await?.partition { itself(conn).await? } else { None };
    Ok(known.is_some_and(|(number, of, _)| (number, of) == (i64::from(partition.number()), i64::from(partition.of()))))
}

/// Creates the partitions, each in the database of its place, and then the directory. A partition that exists already is used if it is the same
/// one, so that this can be repeated after a failure. Returns false if the directory exists and lists the same places; nothing is changed then.
///
/// Returns `Err(Partition)` if the database has tables of instances, is itself a partition or has another directory, and if a schema is another
/// partition or has tables of instances and is no partition.
pub async fn create(directory: &Store, settings: &Settings, places: &[PartitionPlace], now: Timestamp) -> Result<bool> {
    let mut reader = directory.reader().await?;
    if !is_free(directory, &mut reader.conn(), places).await? {
        return Ok(false);
    }
    drop(reader);
    for place in places {
        create_one(settings, place, now).await?;
    }
    let mut tx = directory.begin().await?;
    let mut conn = tx.conn();
    conn.wait_for_locks().await?;
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    // Another process may have created the same partitions meanwhile.
    if !is_free(directory, &mut conn, places).await? {
        return Ok(false);
    }
    conn.script(sql::DIRECTORY_TABLE).await?;
    for PartitionPlace { partition, schema, url, .. } in places {
        conn.rows(&sql::PARTITION_ADD, &values![i64::from(partition.number()), schema.as_str(), url.as_deref()]).await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// True if the schema can get a directory, false if it has this one.
async fn is_free(store: &Store, conn: &mut Conn<'_>, places: &[PartitionPlace]) -> Result<bool> {
    let tables = tables(conn).await?;
    if tables.directory {
        let known = listed(store, conn).await?;
        return match known.len() {
            _ if known == places => Ok(false),
            of if of == places.len() => Err(unfit(store, &format!("has a directory that lists its {of} partitions at other places"))),
            of => Err(unfit(store, &format!("has {of} partitions already, and their number does not change"))),
        };
    }
    match (tables.partition, tables.instances) {
        (true, _) => Err(is_partition(store)),
        (_, true) => {
            Err(unfit(store, "has the tables of a database without partitions; partitions need a database or schema without them"))
        }
        _ => Ok(true),
    }
}

/// Creates the schema and the tables of one partition.
pub(super) async fn create_one(settings: &Settings, place: &PartitionPlace, now: Timestamp) -> Result<()> {
    let own = place.here(settings);
    let server = Store::open(Settings { schema: None, ..own.clone() }).await?;
    let created = create_schema(&server, &place.schema).await;
    server.close().await;
    created?;
    let store = Store::open(own).await?;
    let created = create_tables(&store, place, now).await;
    store.close().await;
    created
}

async fn create_schema(server: &Store, schema: &str) -> Result<()> {
    let mut tx = server.begin().await?;
    let mut conn = tx.conn();
    conn.wait_for_locks().await?;
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    conn.rows(&sql::NAME_SCHEMA, &values![schema]).await?;
    conn.script(sql::CREATE_SCHEMA).await?;
    tx.commit().await
}

/// Says first which partition the schema is, so that the tables of another partition are never migrated.
async fn create_tables(store: &Store, place: &PartitionPlace, now: Timestamp) -> Result<()> {
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    conn.wait_for_locks().await?;
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    let tables = tables(&mut conn).await?;
    if tables.instances && !tables.partition {
        return Err(unfit(store, "has tables already, and is no partition"));
    }
    if !tables.partition {
        conn.script(sql::PARTITION_TABLE).await?;
        conn.rows(&sql::PARTITION_IS, &values![i64::from(place.partition.number()), i64::from(place.partition.of()), place.place_number])
            .await?;
    }
    tx.commit().await?;
    check(store, place).await?;
    migrate::up(store, now).await
}

/// Examines a page of at most `limit` keys after `after`, of the instances of one machine.
pub async fn examine_keys(conn: &mut Conn<'_>, partition: Partition, machine: &str, after: &str, limit: u32) -> Result<ExaminedKeys> {
    let rows = conn.rows(&sql::KEYS_AFTER, &values![after, machine, i64::from(limit)]).await?;
    let keys = rows.iter().map(|row| row.get::<String>(0)).collect::<Result<Vec<_>>>()?;
    let (examined, next) = (keys.len() as u64, keys.last().cloned().filter(|_| keys.len() >= limit as usize));
    Ok(ExaminedKeys { examined, misplaced: keys.into_iter().filter(|key| !partition.has(key)).collect(), next })
}

async fn tables(conn: &mut Conn<'_>) -> Result<Tables> {
    let rows = conn.rows(&sql::PARTITION_TABLES, &[]).await?;
    let [row] = rows.as_slice() else { return Ok(Tables { directory: false, partition: false, instances: false }) };
    Ok(Tables { directory: row.get(0)?, partition: row.get(1)?, instances: row.get(2)? })
}

/// The number of this partition, the number of all, and the number of this place.
async fn itself(conn: &mut Conn<'_>) -> Result<Option<(i64, i64, i64)>> {
    let rows = conn.rows(&sql::PARTITION, &[]).await?;
    rows.first().map(|row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).transpose()
}

/// The partitions of a directory with `urls`, by turns; in the database of the directory if there are none. `None` unless their number is from 1 to
/// [`MOST_PARTITIONS`].
pub fn places(of: u32, urls: &[String]) -> Option<Vec<PartitionPlace>> {
    let url = |number: u32| urls.get(number as usize % urls.len().max(1)).cloned();
    let is_possible = (1..=MOST_PARTITIONS).contains(&of);
    is_possible.then(|| (0..of).filter_map(|number| Some(PartitionPlace::new(Partition::new(number, of)?, url(number)))).collect())
}

fn is_partition(store: &Store) -> StoreError {
    unfit(store, "is one partition of several; connect to the database that has the directory `fsm_partitions`")
}

fn unfit(store: &Store, says: &str) -> StoreError {
    StoreError::Partition { place: store.place(), says: says.to_owned() }
}
