//! Moving a partition to another PostgreSQL database.
//!
//! The schema at the old place is renamed, so that each statement of a process that still uses it fails, also a prepared one. The rows are then
//! copied, and the directory gets the new place. A move that ended after any step is continued by another one, or cancelled.
//!
//! The new place has another name until it has all rows. A process that remembers it from an earlier move cannot write there before, and rows
//! are only ever copied to tables that no process uses.

use std::time::{Duration, Instant};

use fsm_core::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};

use super::clock_difference;
use super::copy::{self, Side};
use super::location::connected;
use super::quoted;
use crate::error::{Result, StoreError, is_of_locks};
use crate::guarded::within;
use crate::migrate;
use crate::open::Store;
use crate::partition_place::PartitionPlace;
use crate::partitions;
use crate::settings::Settings;
use crate::sql;

/// The pause before the locks are tried again, in which the transactions that waited for them go on.
const PAUSE: Duration = Duration::from_millis(500);
/// The connection with the lock is used this often during the copy, so that nothing between closes it and its loss is noticed.
const LOCK_CHECKED_EVERY: Duration = Duration::from_secs(5);
/// The longest time for a statement that is about a whole table, or that waits for other transactions.
const LONGEST: Duration = Duration::from_secs(600);
/// The tables of which each place has its own rows.
const OWN_TABLES: [&str; 2] = ["fsm_partition", "fsm_migrations"];

/// A move of one partition. While it exists, no other process moves the same partition.
pub struct PartitionMove {
    /// Has the lock of the partition in an open transaction. The last step is part of this transaction, so that no process without the lock
    /// takes it.
    lock: PgConnection,
    settings: Settings,
    from: PartitionPlace,
    to: PartitionPlace,
    ignores_clocks: bool,
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
        let (lock, from) = limited(locked(directory, number)).await?;
        match &from.moving_to {
            None if from.url.as_deref().unwrap_or(&directory.url) == to => return Ok(None),
            Some(other) if other != to => {
                let says = "is being moved to another database; continue that move with the URL that the list shows, or cancel it";
                return Err(unfit(&from, says));
            }
            _ => {}
        }
        let to = PartitionPlace { url: Some(to.to_owned()), place_number: from.place_number + 1, moving_to: None, ..from.clone() };
        Ok(Some(PartitionMove { lock, settings: directory.clone(), from, to, ignores_clocks: false }))
    }

    /// Moves the partition also if the clocks differ by more than leases allow.
    pub fn ignore_clocks(self) -> PartitionMove {
        PartitionMove { ignores_clocks: true, ..self }
    }

    /// The partition's place before the move.
    pub fn from(&self) -> &PartitionPlace {
        &self.from
    }

    /// Takes a step, after those before it. A step that was taken before is taken again without harm. [`Step::Copy`] returns the number of rows.
    ///
    /// Returns `Err(Partition)` if a place does not fit or transactions hold the tables for too long, and `Err(Deadline)` if a server does not
    /// answer.
    pub async fn step(&mut self, step: Step, now: Timestamp) -> Result<u64> {
        has_lock(&mut self.lock, &self.from, self.settings.deadline).await?;
        match step {
            Step::Announce => limited(self.announce()).await.map(|()| 0),
            Step::Prepare => limited(self.prepare(now)).await.map(|()| 0),
            Step::Freeze => limited(self.freeze()).await.map(|()| 0),
            Step::Copy => self.copy().await,
            Step::Switch => limited(self.switch()).await.map(|()| 0),
        }
    }

    async fn announce(&mut self) -> Result<()> {
        self.check_clocks().await?;
        let announced = sqlx::query(sql::PARTITION_ANNOUNCE).bind(i64::from(self.from.partition.number())).bind(&self.to.url);
        let mut directory = connected(&self.settings, &self.settings.url).await?;
        let announced = announced.bind(self.from.place_number).execute(&mut directory).await?.rows_affected();
        if announced == 1 { Ok(()) } else { Err(unfit(&self.from, "was changed in the directory meanwhile")) }
    }

    /// Returns an error if the clocks of the servers differ too much. A partition that is frozen already is not kept from its new place.
    async fn check_clocks(&self) -> Result<()> {
        let (mut source, schema) = self.source().await?;
        if self.ignores_clocks || schema != self.from.schema {
            return Ok(());
        }
        let says = clock_difference::too_large((&mut source, &schema), &mut self.target().await?).await?;
        says.map_or(Ok(()), |says| Err(unfit(&self.from, &says)))
    }

    async fn prepare(&mut self, now: Timestamp) -> Result<()> {
        let (mut source, schema) = self.source().await?;
        if exists(&mut self.target().await?, &self.to.schema).await? {
            // With the old place still frozen it is the copy that was made. Otherwise it is older than the rows, or something else.
            return if schema == self.from.schema { Err(unfit(&self.from, IS_THERE)) } else { checked(&self.to, &self.settings).await };
        }
        let arriving = PartitionPlace { schema: arriving(&self.to), ..self.to.clone() };
        partitions::create_one(&self.settings, &arriving, now).await?;
        let relations = sql::RELATIONS_OF_SCHEMA;
        let known: Vec<String> = sqlx::query_scalar(relations).bind(&arriving.schema).fetch_all(&mut self.target().await?).await?;
        let mut others: Vec<String> = sqlx::query_scalar(relations).bind(&schema).fetch_all(&mut source).await?;
        others.retain(|relation| !known.contains(relation));
        if !others.is_empty() {
            let says = format!("has tables that are not moved: {}; move them to another schema first", others.join(", "));
            return Err(unfit(&self.from, &says));
        }
        if schema == self.from.schema {
            self.check_roles(&mut source, &arriving.schema).await?;
            checked(&self.from, &self.settings).await?;
        }
        Ok(())
    }

    /// Returns an error if roles have rights at the old place and none at the new one. Their programs could not use the partition there.
    async fn check_roles(&self, source: &mut PgConnection, arriving: &str) -> Result<()> {
        let there: Vec<String> = sqlx::query_scalar(sql::ROLES_OF_SCHEMA).bind(arriving).fetch_all(&mut self.target().await?).await?;
        let here: Vec<String> = sqlx::query_scalar(sql::ROLES_OF_SCHEMA).bind(&self.from.schema).fetch_all(source).await?;
        let missing: Vec<_> = here.into_iter().filter(|role| !there.contains(role)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let says = format!(
            "has rights that are not moved, of the roles {}; grant them at the new place, on the schema `{arriving}`, and begin the move again. \
             `migrations/roles.sql` does it after `set search_path = {arriving}` for the roles of the library",
            missing.join(", ")
        );
        Err(unfit(&self.from, &says))
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
                Err(error) if !is_of_locks(&error) => return Err(error.into()),
                Err(_) if begun.elapsed() >= self.settings.deadline => return Err(unfit(&self.from, HELD)),
                Err(_) => {}
            }
            source.execute(sql::ROLLBACK).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Copies all rows, and gives the new place its name, in one transaction there.
    async fn copy(&mut self) -> Result<u64> {
        let ((mut source, schema), mut target) = (self.source().await?, self.target().await?);
        if schema == self.from.schema {
            return Err(unfit(&self.from, "is in use again; begin the move again"));
        }
        if exists(&mut target, &self.to.schema).await? {
            // They were copied already, and may be in use.
            return Ok(0);
        }
        let (arriving, name, deadline) = (arriving(&self.to), &self.to.schema, self.settings.deadline);
        let copying = async {
            let names = limited(emptied(&self.from, (&mut source, &schema), (&mut target, &arriving))).await?;
            let mut rows = 0;
            for table in &names {
                rows += copy::table((&mut source, &schema), (&mut target, &arriving), table, deadline).await?;
            }
            limited(async {
                copy::identities((&mut source, &schema), (&mut target, &arriving)).await?;
                each(&mut target, sql::analyze, &arriving, &names).await?;
                rename(&mut target, &arriving, name).await?;
                let functions: Vec<String> = sqlx::query_scalar(sql::FUNCTIONS_OF_SCHEMA).bind(name).fetch_all(&mut target).await?;
                for function in functions {
                    // Those of the roles name the schema.
                    let text = sql::search_in(&function, &quoted(name));
                    target.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
                }
                target.execute(sql::COMMIT).await?;
                Ok(rows)
            })
            .await
        };
        tokio::select! {
            copied = copying => copied,
            lost = lost_lock(&mut self.lock, &self.from, deadline) => Err(lost),
        }
    }

    async fn switch(&mut self) -> Result<()> {
        let switched = sqlx::query(sql::PARTITION_SWITCH).bind(i64::from(self.from.partition.number())).bind(&self.to.url);
        let switched = switched.bind(self.from.place_number).execute(&mut self.lock).await?.rows_affected();
        if switched != 1 {
            return Err(unfit(&self.from, "was changed in the directory meanwhile"));
        }
        within(self.settings.deadline, self.lock.execute(sql::COMMIT)).await?;
        Ok(())
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

/// Cancels the move of a partition whose rows are not all copied: the old place is used again. Returns the place.
///
/// Returns `Err(Partition)` if the partition is not being moved, if all its rows are copied, or if a process moves it now.
pub async fn cancel(directory: &Settings, number: u32) -> Result<PartitionPlace> {
    limited(cancelled(directory, number)).await
}

async fn cancelled(directory: &Settings, number: u32) -> Result<PartitionPlace> {
    let (lock, from) = locked(directory, number).await?;
    // A process that lost its lock may have frozen a partition that is no longer listed as moving.
    let url = from.moving_to.clone().or_else(|| from.url.clone());
    let to = PartitionPlace { url, place_number: from.place_number + 1, moving_to: None, ..from.clone() };
    let mut this = PartitionMove { lock, settings: directory.clone(), from, to, ignores_clocks: true };
    let (mut source, schema) = this.source().await?;
    let is_frozen = schema != this.from.schema;
    if this.from.moving_to.is_none() && !is_frozen {
        return Err(unfit(&this.from, "is not being moved"));
    }
    if is_frozen {
        // A new place that cannot be reached does not keep the old one from being used. A later move does not take its rows for new ones.
        if this.from.moving_to.is_some()
            && let Ok(mut target) = this.target().await
            && exists(&mut target, &this.to.schema).await?
        {
            return Err(unfit(&this.from, "has all its rows at the new place, which may be in use; continue the move instead"));
        }
        rename(&mut source, &schema, &this.from.schema).await?;
    }
    let cancelled = sqlx::query(sql::PARTITION_CANCEL).bind(i64::from(number)).bind(this.from.place_number);
    cancelled.execute(&mut this.lock).await?;
    this.lock.execute(sql::COMMIT).await?;
    Ok(PartitionPlace { moving_to: None, ..this.from })
}

const HELD: &str = "is used by transactions that hold its tables for too long; end them, and continue the move";
const IS_THERE: &str = "exists at the new place already: it belongs to other partitions, or is the copy of a cancelled move; rename or drop it there \
                        first";

/// The name of the schema at a place that does not have all rows yet.
fn arriving(place: &PartitionPlace) -> String {
    format!("{}_arriving_{}", place.schema, place.place_number)
}

/// The name of the schema at a place that the partition has left.
pub fn frozen(place: &PartitionPlace) -> String {
    format!("{}_moved_{}", place.schema, place.place_number)
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
    let (schema, url, place_number, moving_to) = listed;
    Ok((lock, PartitionPlace { schema, url, place_number, moving_to, ..place }))
}

/// Returns an error unless the transaction of this connection still has the lock, and the directory lists the place that was read under it.
async fn has_lock(lock: &mut PgConnection, from: &PartitionPlace, deadline: Duration) -> Result<()> {
    let listed = sqlx::query_as(sql::PARTITION_LISTED).bind(i64::from(from.partition.number())).fetch_one(lock);
    let (_, url, place_number, _): (String, Option<String>, i64, Option<String>) = within(deadline, listed).await?;
    if (&url, place_number) == (&from.url, from.place_number) { Ok(()) } else { Err(unfit(from, "was changed in the directory meanwhile")) }
}

/// Returns once the lock is lost.
async fn lost_lock(lock: &mut PgConnection, from: &PartitionPlace, deadline: Duration) -> StoreError {
    loop {
        tokio::time::sleep(LOCK_CHECKED_EVERY).await;
        if let Err(error) = has_lock(lock, from, deadline).await {
            return error;
        }
    }
}

/// Returns `Err` unless this place has the partition, with the tables of this version.
async fn checked(place: &PartitionPlace, settings: &Settings) -> Result<()> {
    async fn check(store: &Store, place: &PartitionPlace) -> Result<()> {
        partitions::check(store, place).await?;
        migrate::check(&mut store.reader().await?.conn(), &store.place()).await
    }
    let store = Store::open(place.here(settings)).await?;
    let checked = check(&store, place).await;
    store.close().await;
    checked
}

async fn rename(conn: &mut PgConnection, schema: &str, name: &str) -> Result<()> {
    conn.execute(sqlx::raw_sql(AssertSqlSafe(sql::rename_schema(&quoted(schema), &quoted(name))))).await?;
    Ok(())
}

async fn exists(conn: &mut PgConnection, schema: &str) -> Result<bool> {
    Ok(sqlx::query_scalar(sql::SCHEMA_EXISTS).bind(schema).fetch_one(conn).await?)
}

async fn tables(conn: &mut PgConnection, schema: &str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(sql::TABLES_OF_SCHEMA).bind(schema).fetch_all(conn).await?)
}

/// Begins the transaction that copies. Returns the tables, which are empty in it.
async fn emptied(place: &PartitionPlace, (source, schema): Side<'_>, (target, arriving): Side<'_>) -> Result<Vec<String>> {
    let mut names = tables(target, arriving).await?;
    names.retain(|table| !OWN_TABLES.contains(&table.as_str()));
    if columns(source, schema).await? != columns(target, arriving).await? {
        return Err(unfit(place, "has tables of another version; continue the move with the version of `fsm` that began it"));
    }
    target.execute(sql::BEGIN_COPY).await?;
    each(target, sql::truncate, arriving, &names).await?;
    Ok(names)
}

/// Limits the time of a step, or of a part of one.
async fn limited<T>(part: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LONGEST, part).await.unwrap_or(Err(StoreError::Deadline(LONGEST)))
}

/// The columns of all tables of a schema, in order.
async fn columns(conn: &mut PgConnection, schema: &str) -> Result<Vec<String>> {
    Ok(sqlx::query_scalar(sql::COLUMNS_OF_SCHEMA).bind(schema).fetch_all(conn).await?)
}

/// Runs a statement about each of these tables.
async fn each(conn: &mut PgConnection, statement: fn(&str, &str) -> String, schema: &str, tables: &[String]) -> Result<()> {
    for table in tables {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(statement(&quoted(schema), &quoted(table))))).await?;
    }
    Ok(())
}

fn unfit(place: &PartitionPlace, says: &str) -> StoreError {
    let (number, schema) = (place.partition.number(), &place.schema);
    StoreError::Partition { place: format!("partition {number} (the schema `{schema}`)"), says: says.to_owned() }
}
