//! The tables and how they came to be: our own list of migrations, never the application's.

use fsm_core::time::Timestamp;

use super::conn::values;
use super::error::{Result, StoreError};
use super::open::Store;
use super::sql;

struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// In order of version.
const MIGRATIONS: [Migration; 1] = [Migration {
    version: 1,
    name: "first",
    sqlite: include_str!("../../migrations/sqlite/0001_first.sql"),
    postgres: include_str!("../../migrations/postgres/0001_first.sql"),
}];

/// Brings the schema up to date, in one transaction and under a lock, so that any number of processes may start at once.
/// `Err(NewerSchema)` when a later version of this crate was here first; nothing is changed then.
pub async fn up(store: &Store, now: Timestamp) -> Result<()> {
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    conn.rows(&sql::MIGRATION_LOCK, &[]).await?;
    conn.rows(&sql::MIGRATION_TABLE, &[]).await?;
    let mut applied = Vec::new();
    for row in conn.rows(&sql::MIGRATIONS, &[]).await? {
        applied.push((row.get::<i64>(0)?, row.get::<i64>(1)?));
    }
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    if let Some((found, _)) = applied.iter().find(|(version, _)| *version > known) {
        return Err(StoreError::NewerSchema { found: *found, known });
    }
    for migration in &MIGRATIONS {
        let script = if conn.is_postgres() { migration.postgres } else { migration.sqlite };
        match applied.iter().find(|(version, _)| *version == migration.version) {
            Some((_, found)) if *found == checksum(script) => {}
            Some(_) => return Err(StoreError::OtherSchema { version: migration.version }),
            None => {
                conn.script(script).await?;
                conn.rows(&sql::MIGRATED, &values![migration.version, migration.name, checksum(script), now.as_micros()]).await?;
            }
        }
    }
    tx.commit().await
}

/// A name for the schema that these migrations make.
#[cfg(feature = "testing")]
pub(crate) fn fingerprint() -> String {
    let all: Vec<&str> = MIGRATIONS.iter().map(|migration| migration.postgres).collect();
    format!("{:x}", checksum(&all.concat()))
}

/// FNV-1a: enough to notice that a file is another one.
fn checksum(text: &str) -> i64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash as i64
}
