//! Opening a PostgreSQL database.

use std::io;
use std::sync::Arc;

use sqlx::postgres::PgConnection;

use super::location::Location;
use super::pool::PostgresPool;
use super::servers::{Servers, is_setting_refused};
use crate::address::{schema_of, wrong};
use crate::error::{Result, StoreError};
use crate::guarded::StatementSettings;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::shares::Purpose;
use crate::sql;
use crate::values::values;

impl PostgresPool {
    /// Opens the database of the URL and makes a first connection.
    pub(crate) async fn open(settings: &Settings) -> Result<PostgresPool> {
        let pool = connected(settings).await?;
        let Some(schema) = &settings.schema else { return Ok(pool) };
        let (current, exists) = current_schema(&pool.pool, schema).await?;
        let says = match (current.as_ref() == Some(schema), exists) {
            (true, _) => return Ok(pool),
            // Statements would write to another schema.
            (false, true) => "is not used: a pooler does not pass the setting `search_path` on",
            (false, false) if settings.directory.is_some() => {
                let says = "the schema does not exist: the partition is being moved, or the directory is wrong";
                let source = sqlx::Error::Io(io::Error::new(io::ErrorKind::NotFound, says));
                return Err(StoreError::Unreachable { place: schema_of(schema, &pool.location.name()), source });
            }
            (false, false) => "does not exist",
        };
        Err(StoreError::Partition { place: schema_of(schema, &pool.location.name()), says: says.into() })
    }
}

impl PostgresPool {
    /// The pool of a database to which no connection is made yet. `is_direct` says that no pooler is between.
    pub(crate) fn unopened(settings: &Settings, is_direct: bool) -> Result<PostgresPool> {
        let servers = Servers::parse(&settings.url).map_err(|says| wrong(&settings.url, says))?;
        let channel = settings.schema.as_ref().map_or_else(|| sql::CHANNEL.to_owned(), |schema| format!("{}_{schema}", sql::CHANNEL));
        let location = Arc::new(Location::new(settings, servers, is_direct));
        let pool = Pool::new(&location.name(), Arc::clone(&location), settings.connections.max(1) as usize, settings.deadline);
        Ok(PostgresPool { pool, location, channel, is_direct, is_read_only: settings.read_only, listening: settings.listening.clone() })
    }
}

async fn connected(settings: &Settings) -> Result<PostgresPool> {
    if settings.statement_cache {
        // A pooler either refuses an unknown setting when a connection begins, or does not pass it on to the server.
        let marked = PostgresPool::unopened(settings, true)?;
        match is_marked(&marked.pool).await {
            Ok(true) => return Ok(marked),
            Ok(false) => {}
            Err(StoreError::Unreachable { source, .. }) if is_setting_refused(&source) => {}
            Err(error) => return Err(error),
        }
    }
    let opened = PostgresPool::unopened(settings, false)?;
    drop(opened.pool.take(Purpose::Short).await?);
    Ok(opened)
}

/// The schema in which a session's statements find their tables, if there is one, and whether `schema` exists.
async fn current_schema(pool: &Pool<PgConnection>, schema: &str) -> Result<(Option<String>, bool)> {
    let mut taken = pool.take(Purpose::Short).await?;
    let rows = taken.guarded(&StatementSettings::DEFAULT).rows(&sql::CURRENT_SCHEMA, &values![schema]).await?;
    rows.first().map_or(Ok((None, false)), |row| Ok((row.get(0)?, row.get(1)?)))
}

/// True if a setting that the connection requested at its start is set in the session in which its statements run. No pooler is between
/// then.
async fn is_marked(pool: &Pool<PgConnection>) -> Result<bool> {
    let mut taken = pool.take(Purpose::Short).await?;
    let rows = taken.guarded(&StatementSettings::DEFAULT).rows(&sql::IS_MARKED, &[]).await?;
    rows.first().map_or(Ok(false), |row| row.get(0))
}
