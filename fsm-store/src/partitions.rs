//! The directory of partitions on PostgreSQL. A partition is a schema with all tables, on the server of the directory or on another one.

use fsm_core::partition::{MOST_PARTITIONS, Partition};
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::migrate;
use super::open::Store;
use super::settings::Settings;
use super::sql;
use super::values::values;

/// The place of a partition, as the directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionPlace {
    /// The partition.
    pub partition: Partition,
    /// The schema of its tables.
    pub schema: String,
    /// The URL of its database; `None` for the database of the directory.
    pub url: Option<String>,
}

impl PartitionPlace {
    /// The place of a partition that is created: the schema is named after the number.
    pub fn new(partition: Partition, url: Option<String>) -> PartitionPlace {
        PartitionPlace { partition, schema: format!("fsm_{:04}", partition.number()), url }
    }

    /// The settings to open this partition, for a directory that was opened with `directory`.
    pub fn settings(&self, directory: &Settings) -> Settings {
        let url = self.url.clone().unwrap_or_else(|| directory.url.clone());
        Settings { url, schema: Some(self.schema.clone()), ..directory.clone() }
    }
}

/// The places of all partitions, by number. Empty if the database has no directory: it is not partitioned.
///
/// Returns `Err(Partition)` if the schema is itself a partition, or if the directory does not list each partition once.
pub async fn directory(store: &Store) -> Result<Vec<PartitionPlace>> {
    if !store.is_postgres() {
        return Ok(Vec::new());
    }
    let mut reader = store.reader().await?;
    let (has_directory, is_partition, _) = tables(&mut reader.conn()).await?;
    if is_partition {
        return Err(unfit(store, "is one partition of several; connect to the database that has the directory `fsm_partitions`"));
    }
    if has_directory { listed(store, &mut reader.conn()).await } else { Ok(Vec::new()) }
}

async fn listed(store: &Store, conn: &mut Conn<'_>) -> Result<Vec<PartitionPlace>> {
    let rows = conn.rows(&sql::PARTITIONS, &[]).await?;
    let of = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut places = Vec::with_capacity(rows.len());
    for (number, row) in (0..of).zip(&rows) {
        let partition = Partition::new(number, of).filter(|_| row.get::<i64>(0).is_ok_and(|listed| listed == i64::from(number)));
        let Some(partition) = partition else {
            return Err(unfit(store, &format!("has a directory of {of} partitions in which number {number} is not the next")));
        };
        places.push(PartitionPlace { partition, schema: row.get(1)?, url: row.get(2)? });
    }
    Ok(places)
}

/// Returns `Err(Partition)` unless the open store is the partition that the directory says it is.
pub async fn check(store: &Store, place: &PartitionPlace) -> Result<()> {
    let mut reader = store.reader().await?;
    let (_, is_partition, _) = tables(&mut reader.conn()).await?;
    let known = if is_partition { itself(&mut reader.conn()).await? } else { None };
    let (number, of) = (place.partition.number(), place.partition.of());
    match known {
        Some(known) if known == (i64::from(number), i64::from(of)) => Ok(()),
        Some((other, others)) => Err(unfit(
            store,
            &format!("is partition {other} of {others}, and the directory lists it as {number} of {of}; correct the directory"),
        )),
        None => Err(unfit(store, &format!("is no partition, and the directory lists it as {number} of {of}; run `fsm partitions init`"))),
    }
}

/// Returns true if statements on a user's connection find the tables of this partition.
pub async fn is_on(conn: &mut Conn<'_>, partition: Partition) -> Result<bool> {
    let (_, is_partition, _) = tables(conn).await?;
    let known = if is_partition { itself(conn).await? } else { None };
    Ok(known == Some((i64::from(partition.number()), i64::from(partition.of()))))
}

/// Creates the partitions, each in the database of one of the `urls` by turns, or all in this database, and then the directory. A partition that
/// exists already is used if it is the same one, so that this can be repeated after a failure.
///
/// Returns `Err(Partition)` if the database has instances of its own or another directory, or if a schema is another partition.
pub async fn create(directory: &Store, settings: &Settings, places: &[PartitionPlace], now: Timestamp) -> Result<()> {
    let mut reader = directory.reader().await?;
    let (has_directory, is_partition, has_instances) = tables(&mut reader.conn()).await?;
    if has_directory {
        let known = listed(directory, &mut reader.conn()).await?;
        let is_same = known == places;
        return if is_same { Ok(()) } else { Err(unfit(directory, &format!("has a directory of {} other partitions", known.len()))) };
    }
    if is_partition || has_instances {
        return Err(unfit(
            directory,
            "has the tables of an unpartitioned database; export it, and import it into a new one with partitions",
        ));
    }
    drop(reader);
    for place in places {
        create_one(settings, place, now).await?;
    }
    let mut tx = directory.begin().await?;
    let mut conn = tx.conn();
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    conn.script(sql::DIRECTORY_TABLE).await?;
    for PartitionPlace { partition, schema, url } in places {
        conn.rows(&sql::PARTITION_ADD, &values![i64::from(partition.number()), schema.as_str(), url.as_deref()]).await?;
    }
    tx.commit().await
}

async fn create_one(settings: &Settings, place: &PartitionPlace, now: Timestamp) -> Result<()> {
    let own = place.settings(settings);
    let server = Store::open(Settings { schema: None, ..own.clone() }).await?;
    let mut tx = server.begin().await?;
    tx.conn().rows(&sql::NAME_SCHEMA, &values![place.schema.as_str()]).await?;
    tx.conn().script(sql::CREATE_SCHEMA).await?;
    tx.commit().await?;
    server.close().await;
    let store = Store::open(own).await?;
    migrate::up(&store, now).await?;
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    if !tables(&mut conn).await?.1 {
        conn.script(sql::PARTITION_TABLE).await?;
        conn.rows(&sql::PARTITION_IS, &values![i64::from(place.partition.number()), i64::from(place.partition.of())]).await?;
    }
    tx.commit().await?;
    let checked = check(&store, place).await;
    store.close().await;
    checked
}

/// Keys of instances of the machine that belong to another partition: at most the first `most` of a page of `limit` keys after `after`. Also returns
/// the last key of the page, if there may be another page.
pub async fn misplaced(
    conn: &mut Conn<'_>,
    partition: Partition,
    machine: &str,
    after: &str,
    limit: u32,
) -> Result<(Vec<String>, Option<String>)> {
    let rows = conn.rows(&sql::KEYS_AFTER, &values![after, machine, i64::from(limit)]).await?;
    let keys = rows.iter().map(|row| row.get::<String>(0)).collect::<Result<Vec<_>>>()?;
    let last = keys.last().cloned().filter(|_| keys.len() == limit as usize);
    Ok((keys.into_iter().filter(|key| !partition.has(key)).collect(), last))
}

/// Whether the schema has a directory, is a partition, and has tables of instances.
async fn tables(conn: &mut Conn<'_>) -> Result<(bool, bool, bool)> {
    let rows = conn.rows(&sql::PARTITION_TABLES, &[]).await?;
    rows.first().map_or(Ok((false, false, false)), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// The number of this partition, and the number of all.
async fn itself(conn: &mut Conn<'_>) -> Result<Option<(i64, i64)>> {
    let rows = conn.rows(&sql::PARTITION, &[]).await?;
    rows.first().map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}

/// The partitions of a directory with `urls`, by turns; in the database of the directory if there are none. `None` unless their number is from 1 to
/// [`MOST_PARTITIONS`].
pub fn places(of: u32, urls: &[String]) -> Option<Vec<PartitionPlace>> {
    let url = |number: u32| urls.get(number as usize % urls.len().max(1)).cloned();
    let is_possible = (1..=MOST_PARTITIONS).contains(&of);
    is_possible.then(|| (0..of).filter_map(|number| Some(PartitionPlace::new(Partition::new(number, of)?, url(number)))).collect())
}

fn unfit(store: &Store, says: &str) -> StoreError {
    StoreError::Partition { place: store.place().to_owned(), says: says.to_owned() }
}
