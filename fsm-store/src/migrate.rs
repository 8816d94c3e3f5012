//! The schema and its migrations. The list of migrations is this crate's own and separate from the application's.

use fsm_core::hash::fnv1a_64;
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::{Result, SchemaError};
use super::open::Store;
use super::sql;
use super::values::values;

struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// In order of version.
const MIGRATIONS: [Migration; 2] = [
    Migration {
        version: 1,
        name: "first",
        sqlite: include_str!("../migrations/sqlite/0001_first.sql"),
        postgres: include_str!("../migrations/postgres/0001_first.sql"),
    },
    Migration {
        version: 2,
        name: "screens",
        sqlite: include_str!("../migrations/sqlite/0002_screens.sql"),
        postgres: include_str!("../migrations/postgres/0002_screens.sql"),
    },
];

/// Group roles for PostgreSQL, with the least privileges of an owner, a worker, a sender and a viewer. A script to be run by hand after the
/// migrations.
pub const ROLES: &str = include_str!("../migrations/roles.sql");

/// A migration that this crate knows, or that the database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The version, from 1.
    pub version: i64,
    /// Its name.
    pub name: String,
    /// The time at which it was applied; `None` if it was not.
    pub applied_at: Option<Timestamp>,
    /// True if the migration in the database is the same as the one of this crate with this number.
    pub is_ours: bool,
}

/// Brings the schema up to date, in one transaction and under a lock, so that any number of processes may start at once.
/// Returns `Err(Schema)` if a later version of this crate has migrated the database; nothing is changed then.
///
/// If no migration is missing, writes nothing and takes no lock, so that no privilege to create tables is needed.
pub async fn up(store: &Store, now: Timestamp) -> Result<()> {
    let found = status(&mut store.reader().await?.conn()).await?;
    refuse_others(&found)?;
    if found.iter().all(|step| step.applied_at.is_some()) {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    conn.wait_for_locks().await?;
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    conn.rows(&sql::MIGRATION_TABLE, &[]).await?;
    let steps = applied(&mut conn).await?;
    refuse_others(&steps)?;
    for migration in MIGRATIONS.iter().filter(|migration| steps.iter().all(|step| step.version != migration.version)) {
        let script = migration.script(conn.is_postgres());
        conn.script(script).await?;
        conn.rows(&sql::MIGRATED, &values![migration.version, migration.name, checksum(script), now.as_micros()]).await?;
    }
    tx.commit().await
}

/// Every migration: those in the database first, then those that are missing. Only reads. Without our table no migration is applied.
pub async fn status(conn: &mut Conn<'_>) -> Result<Vec<Step>> {
    let has_table = conn.rows(&sql::MIGRATION_TABLE_EXISTS, &[]).await?;
    let mut steps = if has_table.is_empty() { Vec::new() } else { applied(conn).await? };
    let missing = MIGRATIONS.iter().filter(|migration| steps.iter().all(|step| step.version != migration.version));
    let missing: Vec<_> =
        missing.map(|one| Step { version: one.version, name: one.name.into(), applied_at: None, is_ours: true }).collect();
    steps.extend(missing);
    Ok(steps)
}

/// Checks that the schema is the one that this crate reads and writes. Changes nothing.
///
/// Returns `Err(Schema)` if it is not.
pub async fn check(conn: &mut Conn<'_>, place: &str) -> Result<()> {
    let steps = status(conn).await?;
    refuse_others(&steps)?;
    let found = steps.iter().filter(|step| step.applied_at.is_some()).map(|step| step.version).max();
    match found {
        None => Err(SchemaError::NoTables { place: place.to_owned() }.into()),
        Some(found) if found < newest() => Err(SchemaError::Older { found, known: newest() }.into()),
        Some(_) => Ok(()),
    }
}

/// A script that creates the tables in an empty database and records the migrations as applied at `now`, for users who run migrations with
/// their own tools.
pub fn script(is_postgres: bool, now: Timestamp) -> String {
    let table = if is_postgres { sql::MIGRATION_TABLE.postgres } else { sql::MIGRATION_TABLE.sqlite };
    let mut script = format!("{};\n", table.trim());
    for migration in &MIGRATIONS {
        let text = migration.script(is_postgres);
        let recorded = sql::migrated(migration.version, migration.name, checksum(text), now.as_micros());
        script.push_str(&format!("\n-- migration {}: {}\n\n{}\n\n{recorded}\n", migration.version, migration.name, text.trim()));
    }
    script
}

impl Migration {
    fn script(&self, is_postgres: bool) -> &'static str {
        if is_postgres { self.postgres } else { self.sqlite }
    }
}

/// The last version that this crate knows.
pub fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

async fn applied(conn: &mut Conn<'_>) -> Result<Vec<Step>> {
    let is_postgres = conn.is_postgres();
    let mut steps = Vec::new();
    for row in conn.rows(&sql::MIGRATIONS, &[]).await? {
        let (version, sum) = (row.get::<i64>(0)?, row.get::<i64>(1)?);
        let ours = MIGRATIONS.iter().find(|migration| migration.version == version);
        let is_ours = ours.is_some_and(|migration| checksum(migration.script(is_postgres)) == sum);
        steps.push(Step { version, name: row.get(2)?, applied_at: Some(row.time(3)?), is_ours });
    }
    Ok(steps)
}

fn refuse_others(steps: &[Step]) -> Result<()> {
    match steps.iter().find(|step| !step.is_ours) {
        Some(newer) if newer.version > newest() => Err(SchemaError::Newer { found: newer.version, known: newest() }.into()),
        Some(other) => Err(SchemaError::Other { version: other.version }.into()),
        None => Ok(()),
    }
}

/// A name for the tables that these migrations and the creation of partitions make.
#[cfg(all(feature = "testing", feature = "postgres"))]
pub(crate) fn fingerprint() -> String {
    let migrations = MIGRATIONS.iter().map(|migration| migration.postgres);
    let all: Vec<&str> = migrations.chain([sql::DIRECTORY_TABLE, sql::PARTITION_TABLE]).collect();
    format!("{:x}", checksum(&all.concat()))
}

/// The checksum of a migration, which shows whether the text of a migration was changed.
fn checksum(text: &str) -> i64 {
    fnv1a_64(text.bytes()) as i64
}
