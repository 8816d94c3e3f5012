//! Moving a partition to another PostgreSQL database.
//!
//! The schema at the old place is renamed, so that each statement of a process that still uses it fails, also a prepared one. The rows are then
//! copied, and the directory gets the new place. A move that ended after any step is continued by another one, or cancelled.

use std::time::{Duration, Instant};

use fsm_core::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};

use super::location::connected;
use super::{copy, quoted};
use crate::error::{Class, Result, StoreError};
use crate::migrate;
use crate::open::Store;
use crate::partitions::{self, PartitionPlace};
use crate::settings::Settings;
use crate::sql;

/// The pause before the locks are tried again, in which the transactions that waited for them go on.
const PAUSE: Duration = Duration::from_millis(500);
/// The tables of which each place has its own rows.
const OWN_TABLES: [&str; 2] = ["fsm_partition", "fsm_migrations"];

/// A move of one partition. While it exists, no other process moves the same partition.
pub struct PartitionMove {
    directory: PgConnection,
    /// Has the lock of the partition in an open transaction.
    _lock: PgConnection,
    settings: Settings,
    from: PartitionPlace,
    to: PartitionPlace,
}

/// A step of a move. Each one is a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The directory says to which database the partition is being moved.
    Announce,
    /// The tables are created in the new place, without rows.
    Prepare,
    /// The schema at the old place is renamed. From here to the last step nothing can use the partition.
    Freeze,
    /// All rows are copied.
    Copy,
    /// The directory lists the new place.
    Switch,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Step; 5] = [Step::Announce, Step::Prepare, Step::Freeze, Step::Copy, Step::Switch];
}

impl PartitionMove {
    /// Begins or continues the move of a partition to the database with the URL `to`. `None` if the partition is there already.
    ///
    /// Returns `Err(Partition)` if it is being moved by another process or to another database.
    pub async fn begin(directory: &Settings, number: u32, to: &str) -> Result<Option<PartitionMove>> {
        let (_lock, from) = locked(directory, number).await?;
        match &from.moving_to {
            None if from.url.as_deref().unwrap_or(&directory.url) == to => return Ok(None),
            Some(other) if other != to => {
                let says = "is being moved to another database; continue that move with the URL that the list shows, or cancel it";
                return Err(unfit(&from, says));
            }
            _ => {}
        }
        let to = PartitionPlace { url: Some(to.to_owned()), epoch: from.epoch + 1, moving_to: None, ..from.clone() };
        let connection = connected(directory, &directory.url).await?;
        Ok(Some(PartitionMove { directory: connection, _lock, settings: directory.clone(), from, to }))
    }

    /// The partition's place before the move.
    pub fn from(&self) -> &PartitionPlace {
        &self.from
    }

    /// Takes a step, after those before it. A step that was taken before is taken again without harm. [`Step::Copy`] returns the number of rows.
    ///
    /// Returns `Err(Partition)` if the place does not fit, and `Err(Locked)` if transactions hold the tables for longer than the deadline.
    pub async fn step(&mut self, step: Step, now: Timestamp) -> Result<u64> {
        match step {
            Step::Announce => self.announce().await.map(|()| 0),
            Step::Prepare => self.prepare(now).await.map(|()| 0),
            Step::Freeze => self.freeze().await.map(|()| 0),
            Step::Copy => self.copy().await,
            Step::Switch => self.switch().await.map(|()| 0),
        }
    }

    async fn announce(&mut self) -> Result<()> {
        let announced = sqlx::query(sql::PARTITION_ANNOUNCE).bind(i64::from(self.from.partition.number())).bind(&self.to.url);
        let announced = announced.bind(self.from.epoch).execute(&mut self.directory).await?.rows_affected();
        if announced == 1 { Ok(()) } else { Err(unfit(&self.from, "was changed in the directory meanwhile")) }
    }

    async fn prepare(&mut self, now: Timestamp) -> Result<()> {
        partitions::create_one(&self.settings, &self.to, now).await?;
        let (mut source, schema) = self.source().await?;
        let known = tables(&mut self.target().await?, &self.to.schema).await?;
        let others: Vec<_> = tables(&mut source, &schema).await?.into_iter().filter(|table| !known.contains(table)).collect();
        if !others.is_empty() {
            let says = format!("has tables that are not moved: {}; move them to another schema first", others.join(", "));
            return Err(unfit(&self.from, &says));
        }
        if schema == self.from.schema {
            let store = Store::open(self.from.here(&self.settings)).await?;
            let checked = migrate::check(&mut store.reader().await?.conn(), &store.place()).await;
            store.close().await;
            checked?;
        }
        Ok(())
    }

    /// Locks all tables, so that each transaction that writes in them has ended, and renames the schema.
    async fn freeze(&mut self) -> Result<()> {
        let (mut source, schema) = self.source().await?;
        if schema != self.from.schema {
            return Ok(());
        }
        let names = tables(&mut source, &schema).await?;
        let text = sql::freeze(&quoted(&schema), &quoted(&frozen(&self.from)), names.iter().map(|table| quoted(table)));
        let begun = Instant::now();
        loop {
            match source.execute(sqlx::raw_sql(AssertSqlSafe(text.clone()))).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let error = StoreError::from(error);
                    if error.class() != Class::Contended || begun.elapsed() >= self.settings.deadline {
                        return Err(error);
                    }
                }
            }
            source.execute(sql::ROLLBACK).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn copy(&mut self) -> Result<u64> {
        let ((mut source, schema), mut target) = (self.source().await?, self.target().await?);
        if schema == self.from.schema {
            return Err(unfit(&self.from, "is in use again; begin the move again"));
        }
        let names: Vec<_> = tables(&mut target, &self.to.schema).await?;
        let names: Vec<_> = names.into_iter().filter(|table| !OWN_TABLES.contains(&table.as_str())).collect();
        target.execute(sql::BEGIN_COPY).await?;
        each(&mut target, "truncate", &self.to.schema, &names).await?;
        let mut rows = 0;
        for table in &names {
            rows += copy::table((&mut source, &schema), (&mut target, &self.to.schema), table, self.settings.deadline).await?;
        }
        copy::identities((&mut source, &schema), (&mut target, &self.to.schema)).await?;
        each(&mut target, "analyze", &self.to.schema, &names).await?;
        target.execute(sql::COMMIT).await?;
        Ok(rows)
    }

    async fn switch(&mut self) -> Result<()> {
        let switched = sqlx::query(sql::PARTITION_SWITCH).bind(i64::from(self.from.partition.number())).bind(&self.to.url);
        let switched = switched.bind(self.from.epoch).execute(&mut self.directory).await?.rows_affected();
        if switched == 1 { Ok(()) } else { Err(unfit(&self.from, "was changed in the directory meanwhile")) }
    }

    /// A connection to the old place, and the present name of the schema there.
    async fn source(&self) -> Result<(PgConnection, String)> {
        let url = self.from.url.as_deref().unwrap_or(&self.settings.url);
        let mut source = connected(&self.settings, url).await?;
        let frozen = frozen(&self.from);
        let schema = match (exists(&mut source, &self.from.schema).await?, exists(&mut source, &frozen).await?) {
            (true, false) => self.from.schema.clone(),
            (false, true) => frozen,
            (true, true) => return Err(unfit(&self.from, &format!("exists beside `{frozen}`, and one of them has to be deleted"))),
            (false, false) => return Err(unfit(&self.from, "does not exist")),
        };
        Ok((source, schema))
    }

    async fn target(&self) -> Result<PgConnection> {
        Ok(connected(&self.settings, self.to.url.as_deref().unwrap_or(&self.settings.url)).await?)
    }
}

/// Cancels the move of a partition that has not reached its last step: the old place is used again. Returns the place.
///
/// Returns `Err(Partition)` if the partition is not being moved, or if a process moves it now.
pub async fn cancel(directory: &Settings, number: u32) -> Result<PartitionPlace> {
    let (_lock, from) = locked(directory, number).await?;
    let Some(to) = &from.moving_to else { return Err(unfit(&from, "is not being moved")) };
    let to = PartitionPlace { url: Some(to.clone()), epoch: from.epoch + 1, moving_to: None, ..from.clone() };
    let mut connection = connected(directory, &directory.url).await?;
    let this = PartitionMove { directory: connected(directory, &directory.url).await?, _lock, settings: directory.clone(), from, to };
    let (mut source, schema) = this.source().await?;
    if schema != this.from.schema {
        let back = format!("alter schema {} rename to {}", quoted(&schema), quoted(&this.from.schema));
        source.execute(sqlx::raw_sql(AssertSqlSafe(back))).await?;
    }
    sqlx::query(sql::PARTITION_CANCEL).bind(i64::from(number)).bind(this.from.epoch).execute(&mut connection).await?;
    Ok(PartitionPlace { moving_to: None, ..this.from })
}

/// The name of the schema at a place that the partition has left.
pub fn frozen(place: &PartitionPlace) -> String {
    format!("{}_moved_{}", place.schema, place.epoch)
}

/// Locks the entry of a partition in the directory, and returns it.
async fn locked(directory: &Settings, number: u32) -> Result<(PgConnection, PartitionPlace)> {
    let store = Store::open(Settings { connections: 1, ..directory.clone() }).await?;
    let places = partitions::directory(&store).await;
    let name = store.place();
    store.close().await;
    let place = places?.into_iter().find(|place| place.partition.number() == number);
    let Some(place) = place else { return Err(StoreError::Partition { place: name, says: format!("has no partition {number}") }) };
    let mut lock = connected(directory, &directory.url).await?;
    lock.execute(sql::BEGIN_LOCK).await?;
    let is_free: bool = sqlx::query_scalar(sql::PARTITION_LOCK).bind(i64::from(number)).fetch_one(&mut lock).await?;
    if !is_free {
        return Err(unfit(&place, "is being moved by another process"));
    }
    // Another process may have moved it before the lock.
    let listed = sqlx::query_as(sql::PARTITION_LISTED).bind(i64::from(number)).fetch_one(&mut lock).await?;
    let (schema, url, epoch, moving_to) = listed;
    Ok((lock, PartitionPlace { schema, url, epoch, moving_to, ..place }))
}

async fn exists(conn: &mut PgConnection, schema: &str) -> Result<bool> {
    Ok(sqlx::query_scalar(sql::SCHEMA_EXISTS).bind(schema).fetch_one(conn).await?)
}

async fn tables(conn: &mut PgConnection, schema: &str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(sql::TABLES_OF_SCHEMA).bind(schema).fetch_all(conn).await?)
}

/// Runs a statement about each of these tables.
async fn each(conn: &mut PgConnection, statement: &str, schema: &str, tables: &[String]) -> Result<()> {
    for table in tables {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(format!("{statement} {}.{}", quoted(schema), quoted(table))))).await?;
    }
    Ok(())
}

fn unfit(place: &PartitionPlace, says: &str) -> StoreError {
    let (number, schema) = (place.partition.number(), &place.schema);
    StoreError::Partition { place: format!("partition {number} (the schema `{schema}`)"), says: says.to_owned() }
}
